package contest

import (
	"context"
	"sync"
)

// The names of the floors that targets speak of.
const (
	FloorRoundTrip          = "floor: SELECT 1"
	FloorUpdate             = "floor: one committed update"
	FloorUpdateAndRoundTrip = "floor: one committed update, one SELECT 1"
	FloorTwoUpdates         = "floor: two committed updates"
)

// step is one statement of a floor.
type step int

const (
	none step = iota
	roundTrip
	update
)

// floors send what stands for an acquisition and what stands for a release.
// There is no lock in it.
func floors() []Contestant {
	var all []Contestant

	for _, on := range []string{"postgres", "mysql", "mariadb", "sqlite"} {
		for _, f := range []struct {
			name       string
			take, give step
		}{
			{FloorRoundTrip, roundTrip, none},
			{FloorUpdate, update, none},
			{FloorUpdateAndRoundTrip, update, roundTrip},
			{FloorTwoUpdates, update, update},
		} {
			all = append(all, Contestant{
				Server: on, Name: f.name, Group: Floor,
				Open: func(ctx context.Context, c Config) (Locker, error) {
					p, err := openPool(ctx, on, c)
					if err != nil {
						return nil, err
					}

					return &floor{pool: p, on: on, take: f.take, give: f.give}, nil
				},
			})
		}
	}

	return all
}

type floor struct {
	pool       *pool
	on         string
	take, give step
	rows       sync.Map // names whose row is there
}

func (f *floor) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	if _, there := f.rows.Load(name); !there {
		if err := f.pool.exec(ctx, floorInsert[f.on], name); err != nil {
			return nil, err
		}

		f.rows.Store(name, true)
	}

	return func(ctx context.Context) error { return f.send(ctx, f.give, name) }, f.send(ctx, f.take, name)
}

func (f *floor) Close(context.Context) error { return f.pool.close() }

func (f *floor) send(ctx context.Context, s step, name string) error {
	switch s {
	case roundTrip:
		return f.pool.exec(ctx, "SELECT 1")
	case update:
		return f.pool.exec(ctx, floorUpdate[f.on], "0123456789abcdef0123456789abcdef", name)
	default:
		return nil
	}
}

const (
	insertIgnore = `INSERT IGNORE INTO sqllock_bare (name) VALUES (?)`
	insertAnew   = `INSERT INTO sqllock_bare (name) VALUES (?) ON CONFLICT DO NOTHING`
	updateMark   = `UPDATE sqllock_bare SET token = token + 1, owner = ? WHERE name = ?`
)

var (
	floorInsert = map[string]string{
		"postgres": `INSERT INTO sqllock_bare (name) VALUES ($1) ON CONFLICT DO NOTHING`,
		"mysql":    insertIgnore,
		"mariadb":  insertIgnore,
		"sqlite":   insertAnew,
	}
	floorUpdate = map[string]string{
		"postgres": `UPDATE sqllock_bare SET token = token + 1, owner = $1 WHERE name = $2`,
		"mysql":    updateMark,
		"mariadb":  updateMark,
		"sqlite":   updateMark,
	}
)
