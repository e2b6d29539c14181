package locks

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	library "cirello.io/pglock"
	_ "github.com/lib/pq" // the only driver that the library says is right for it
)

const (
	pglockModule  = "cirello.io/pglock"
	pglockSource  = "https://pkg.go.dev/cirello.io/pglock"
	pglockPromise = "heartbeats keep it while the program runs, and clocks do no harm; a heartbeat that fails marks it as lost"
)

// pglock is cirello.io/pglock: a row with a number that each heartbeat changes. Whoever waits takes the row when he has seen the
// same number for a lease.
//
// There is no token. The number of a record changes with each heartbeat, and is drawn before the row is tried, so that a later grant
// can have a smaller one.
func pglock() []Lock {
	return []Lock{
		{
			Name: "pglock, IsReleased", Server: "postgres", Module: pglockModule,
			Settings: "a heartbeat each third of the lease; Check: IsReleased",
			Promise:  pglockPromise, Source: pglockSource, Prepare: preparePglock,
			Open: func(_ context.Context, c Config) (Locker, error) {
				pool, client, err := openPglock(c)

				return pglockPlain{pool, client}, err
			},
		},
		{
			Name: "pglock, Do", Server: "postgres", Module: pglockModule,
			Settings: "the same; Check: the context of Client.Do", Smallest: "pglockdo",
			Promise: pglockPromise,
			Source:  pglockSource, Prepare: preparePglock,
			Open: func(_ context.Context, c Config) (Locker, error) {
				pool, client, err := openPglock(c)

				return pglockDo{pool, client}, err
			},
		},
	}
}

func openPglock(c Config) (stdShared, *library.Client, error) {
	dsn, err := c.one()
	if err != nil {
		return stdShared{}, nil, err
	}

	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return stdShared{}, nil, err
	}

	client, err := library.New(db, library.WithLeaseDuration(c.Lease), library.WithHeartbeatFrequency(c.Lease/3))
	if err != nil {
		return stdShared{}, nil, errors.Join(err, db.Close())
	}

	return limited(db, c), client, nil
}

func preparePglock(_ context.Context, c Config) error {
	pool, client, err := openPglock(c)
	if err != nil {
		return err
	}
	defer pool.Close()

	return client.TryCreateTable()
}

type pglockPlain struct {
	stdShared

	client *library.Client
}

// Acquire does not wait for the driver, which waits for the server's answer after the context has ended.
func (l pglockPlain) Acquire(ctx context.Context, name string) (Held, error) {
	heartbeats, stop := context.WithCancel(context.WithoutCancel(ctx)) // the lock outlives the call, as that of Client.Acquire does

	acquire := func() (Held, error) {
		lock, err := l.client.AcquireContext(ctx, name, library.WithCustomHeartbeatContext(heartbeats))
		if err != nil {
			stop()

			return nil, err
		}

		return heldPglock{l.client, lock}, nil
	}

	return acquired(ctx, acquire)
}

// lateRelease bounds the release of a lock that came after its waiter had left.
const lateRelease = 10 * time.Second

// acquired returns at the end of the context, also if acquire does not. What that gets later is released.
func acquired(ctx context.Context, acquire func() (Held, error)) (Held, error) {
	type answer struct {
		held Held
		err  error
	}

	came := make(chan answer, 1)

	go func() {
		held, err := acquire()
		came <- answer{held, err}
	}()

	select {
	case a := <-came:
		return a.held, a.err
	case <-ctx.Done():
	}

	go func() {
		if a := <-came; a.err == nil {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateRelease)
			defer cancel()

			_ = a.held.Release(limited)
		}
	}()

	return nil, context.Cause(ctx)
}

// bounded returns at the end of the context, also if release does not.
func bounded(ctx context.Context, release func() error) error {
	ended := make(chan error, 1)

	go func() { ended <- release() }()

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type heldPglock struct {
	client *library.Client
	lock   *library.Lock
}

var errPglockLost = errors.New("the lock says that it is released or lost")

func (h heldPglock) Check() error {
	if h.lock.IsReleased() {
		return errPglockLost
	}

	return nil
}

func (heldPglock) Token() int64 { return 0 }

func (h heldPglock) Release(ctx context.Context) error {
	return bounded(ctx, func() error { return h.client.ReleaseContext(ctx, h.lock) })
}

type pglockDo struct {
	stdShared

	client *library.Client
}

// Acquire returns when Do has called its function, which goes on until the release.
func (l pglockDo) Acquire(ctx context.Context, name string) (Held, error) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // that of Do is the lock's, too
	waiting := context.AfterFunc(ctx, stop)

	released := make(chan struct{})
	held := heldDo{release: sync.OnceFunc(func() { close(released) }), ended: make(chan error, 1)}
	began := make(chan context.Context, 1)

	go func() {
		defer stop()

		held.ended <- l.client.Do(work, name, func(ctx context.Context, _ *library.Lock) error {
			began <- ctx

			<-released

			return nil
		})
	}()

	select {
	case held.work = <-began:
		if !waiting() { // the context ended meanwhile, and with it that of Do
			held.release()

			return nil, context.Cause(ctx)
		}

		return held, nil
	case err := <-held.ended:
		return nil, errors.Join(err, ctx.Err())
	case <-ctx.Done():
		held.release()

		return nil, context.Cause(ctx)
	}
}

type heldDo struct {
	work    context.Context //nolint:containedctx // what Do gave to its function
	release func()
	ended   chan error
}

func (h heldDo) Check() error { return context.Cause(h.work) }
func (heldDo) Token() int64   { return 0 }

// Release lets the function of Do return. What Do returns is the function's error: it does not tell how the release went.
func (h heldDo) Release(ctx context.Context) error {
	h.release()

	select {
	case err := <-h.ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
