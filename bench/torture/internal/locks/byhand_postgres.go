package locks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	advisorySource  = "https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS"
	advisoryPromise = "held until it is released or its session ends"
)

// postgresByHand are the locks that a team writes in an afternoon.
func postgresByHand() []Lock {
	return append([]Lock{
		{
			Name: "pg_advisory_lock by hand", Server: "postgres",
			Settings: "a connection for each who holds it or waits", Smallest: "advisory",
			Promise: advisoryPromise, Source: advisorySource, Open: openAdvisoryByHand(false),
		},
		{
			Name: "pg_advisory_lock by hand, pinged", Server: "postgres",
			Settings: "the same; a holder pings the session each second",
			Promise:  advisoryPromise, Source: advisorySource, Open: openAdvisoryByHand(true),
		},
	}, rowsByHand()...)
}

func openAdvisoryByHand(pinged bool) func(context.Context, Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		shared, err := openPgx(ctx, c)
		if err != nil {
			return nil, err
		}

		return advisoryByHand{shared, pinged}, nil
	}
}

type advisoryByHand struct {
	pgxShared

	pinged bool
}

func (l advisoryByHand) Acquire(ctx context.Context, name string) (Held, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}

	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name); err != nil {
		return nil, errors.Join(err, discardPgx(conn)) // it may hold the lock
	}

	return &heldAdvisory{conn: conn, name: name, pinged: l.pinged, answered: time.Now()}, nil
}

// discardPgx ends the session, and any lock with it.
func discardPgx(conn *pgxpool.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	return conn.Hijack().Close(ctx)
}

type heldAdvisory struct {
	name   string
	pinged bool

	mutex    sync.Mutex // of the connection, which is for one at a time
	conn     *pgxpool.Conn
	answered time.Time
}

func (*heldAdvisory) Token() int64 { return 0 }

// Check is nil in the form of the textbook: nobody looks at the session.
func (h *heldAdvisory) Check() error {
	if !h.pinged {
		return nil
	}

	h.mutex.Lock()
	defer h.mutex.Unlock()

	if h.conn == nil {
		return errReleased
	}

	if time.Since(h.answered) <= time.Second {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	// A statement that is given up closes the connection: what was lost once stays lost.
	if _, err := h.conn.Exec(ctx, `SELECT 1`); err != nil {
		return err
	}

	h.answered = time.Now()

	return nil
}

// errReleased is of a lock by hand that its holder has released.
var errReleased = errors.New("the lock was released")

func (h *heldAdvisory) Release(ctx context.Context) error {
	h.mutex.Lock()
	defer h.mutex.Unlock()

	if h.conn == nil {
		return errReleased
	}

	conn := h.conn
	h.conn = nil

	freed := false

	err := conn.QueryRow(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, h.name).Scan(&freed)
	if err == nil && !freed {
		err = errors.New("the session did not hold the lock")
	}

	if err != nil {
		return errors.Join(err, discardPgx(conn))
	}

	conn.Release()

	return nil
}
