package contest

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// FloorTold is the least that a hand-over on PostgreSQL takes.
const FloorTold = "floor: a notification, one committed update"

const toldChannel = "sqllock_bare_told"

// toldFloor is a lock without anything that makes it safe: no lease, no owner,
// no way back from a lost connection.
func toldFloor() Contestant {
	return Contestant{
		Server: "postgres", Name: FloorTold, Group: Floor,
		Open: func(ctx context.Context, c Config) (Locker, error) {
			config, err := pgx.ParseConfig(c.Address.DSN)
			if err != nil {
				return nil, err
			}

			config.Database = c.Address.Database

			hears, err := pgx.ConnectConfig(ctx, config)
			if err != nil {
				return nil, err
			}

			if _, err := hears.Exec(ctx, "LISTEN "+toldChannel); err != nil {
				return nil, errors.Join(err, hears.Close(ctx))
			}

			config.Tracer = tracer{c}

			sends, err := pgx.ConnectConfig(ctx, config)
			if err != nil {
				return nil, errors.Join(err, hears.Close(ctx))
			}

			return &told{hears: hears, sends: sends}, nil
		},
	}
}

type told struct{ hears, sends *pgx.Conn }

func (t *told) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	if _, err := t.sends.Exec(ctx, floorInsert["postgres"], name); err != nil {
		return nil, err
	}

	for {
		tag, err := t.sends.Exec(ctx, `UPDATE sqllock_bare SET token = token + 1, owner = 'x' WHERE name = $1 AND owner = ''`, name)
		if err != nil {
			return nil, err
		}

		if tag.RowsAffected() > 0 {
			return func(ctx context.Context) error { return t.release(ctx, name) }, nil
		}

		if _, err := t.hears.WaitForNotification(ctx); err != nil {
			return nil, err
		}
	}
}

func (t *told) release(ctx context.Context, name string) error {
	_, err := t.sends.Exec(ctx, `UPDATE sqllock_bare SET owner = '' WHERE name = $1 AND set_config('synchronous_commit', 'off', true) <> ''
RETURNING pg_notify('`+toldChannel+`', '')`, name)

	return err
}

func (t *told) Close(ctx context.Context) error {
	return errors.Join(t.hears.Close(ctx), t.sends.Close(ctx))
}
