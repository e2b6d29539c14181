package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"
)

// rowPoll is how often a waiter tries to take the row.
const rowPoll = 50 * time.Millisecond

// clock is whose time the row has.
type clock struct {
	name, settings, smallest string
	// acquire has the parameters name, owner, the lease in seconds; client's also the time.
	acquire, renew, release string
	client                  bool
}

var (
	databasesClock = clock{
		name: "row with an expiry by hand, database's clock", settings: "an upsert WHERE expires < clock_timestamp(), each 50 ms; renewed each third of the lease",
		acquire: `INSERT INTO lock_rows (name, owner, expires) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires
			WHERE lock_rows.expires < clock_timestamp()`,
		renew:   `UPDATE lock_rows SET expires = clock_timestamp() + $3 * interval '1 second' WHERE name = $1 AND owner = $2`,
		release: `DELETE FROM lock_rows WHERE name = $1 AND owner = $2`,
	}
	clientsClock = clock{
		name: "row with an expiry by hand, client's clock", settings: "the same WHERE expires < time.Now()", smallest: "clientclock", client: true,
		acquire: `INSERT INTO lock_rows (name, owner, expires) VALUES ($1, $2, $4::timestamptz + $3 * interval '1 second')
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires = excluded.expires
			WHERE lock_rows.expires < $4::timestamptz`,
		renew:   `UPDATE lock_rows SET expires = $4::timestamptz + $3 * interval '1 second' WHERE name = $1 AND owner = $2`,
		release: databasesClock.release,
	}
)

// rowsByHand keep a lock as a row that says until when it is taken.
func rowsByHand() []Lock {
	var all []Lock

	for _, c := range []clock{databasesClock, clientsClock} {
		all = append(all, Lock{
			Name: c.name, Server: "postgres", Settings: c.settings, Smallest: c.smallest, Prepare: prepareRowsByHand,
			Open: func(ctx context.Context, config Config) (Locker, error) {
				shared, err := openPgx(ctx, config)
				if err != nil {
					return nil, err
				}

				return rowByHand{shared, c, config.Lease}, nil
			},
		})
	}

	return all
}

func prepareRowsByHand(ctx context.Context, c Config) error {
	shared, err := openPgx(ctx, c)
	if err != nil {
		return err
	}
	defer shared.Close()

	_, err = shared.pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS lock_rows (
		name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)`)

	return err
}

type rowByHand struct {
	pgxShared

	clock clock
	lease time.Duration
}

func (l rowByHand) Acquire(ctx context.Context, name string) (Held, error) {
	owner := rand.Text()

	for {
		sent := time.Now()

		changed, err := l.execute(ctx, l.clock.acquire, name, owner)
		if err != nil {
			return nil, fmt.Errorf("take the row: %w", err)
		}

		if changed {
			return l.hold(name, owner, sent), nil
		}

		if !pause(ctx, rowPoll) {
			return nil, context.Cause(ctx)
		}
	}
}

// execute says whether the statement changed the row.
func (l rowByHand) execute(ctx context.Context, statement, name, owner string) (bool, error) {
	arguments := []any{name, owner, l.lease.Seconds()}
	if l.clock.client {
		arguments = append(arguments, time.Now())
	}

	tag, err := l.pool.Exec(ctx, statement, arguments...)

	return tag.RowsAffected() > 0, err
}

func (l rowByHand) hold(name, owner string, sent time.Time) *heldRow {
	ctx, end := context.WithCancel(context.Background())
	h := &heldRow{locker: l, name: name, owner: owner, end: end, ended: make(chan struct{}), renewed: sent}

	go h.renew(ctx)

	return h
}

type heldRow struct {
	locker      rowByHand
	name, owner string
	end         func()
	ended       chan struct{} // when no renewal is on its way

	mutex   sync.Mutex
	renewed time.Time // when the last renewal that succeeded was sent
	refused bool
}

// renew goes on until the lock is released, or a renewal matches no row.
func (h *heldRow) renew(ctx context.Context) {
	defer close(h.ended)

	third := h.locker.lease / 3

	for pause(ctx, third) {
		sent := time.Now()

		limited, cancel := context.WithTimeout(ctx, third)
		changed, err := h.locker.execute(limited, h.locker.clock.renew, h.name, h.owner)

		cancel()

		if err != nil {
			continue
		}

		h.mutex.Lock()
		h.refused = !changed

		if changed {
			h.renewed = sent
		}
		h.mutex.Unlock()

		if !changed {
			return
		}
	}
}

func (*heldRow) Token() int64 { return 0 }

func (h *heldRow) Check() error {
	h.mutex.Lock()
	defer h.mutex.Unlock()

	switch {
	case h.refused:
		return errors.New("the row is another owner's")
	case time.Since(h.renewed) >= h.locker.lease:
		return errors.New("the row was not renewed for a lease")
	default:
		return nil
	}
}

func (h *heldRow) Release(ctx context.Context) error {
	h.end()

	select {
	case <-h.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	tag, err := h.locker.pool.Exec(ctx, h.locker.clock.release, h.name, h.owner)
	if err == nil && tag.RowsAffected() == 0 {
		err = errors.New("the row was another owner's, or gone")
	}

	return err
}
