package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	driver "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const (
	redislockModule = "github.com/bsm/redislock"
	redsyncModule   = "github.com/go-redsync/redsync/v4"

	redisSource = "https://redis.io/docs/latest/develop/use/patterns/distributed-locks/"

	redislockPromise = "a fail-over can give two holders, and the work has to end within the TTL"
	redsyncPromise   = "the work has to end within the TTL, and a restart must not forget"
)

func redis() []Lock {
	return []Lock{
		{
			Name: "bsm/redislock, not refreshed", Server: "redis", Brief: true,
			Settings: "tried each 100 ms; Check: TTL",
			Module:   redislockModule, Promise: redislockPromise, Source: redisSource,
			Open: openRedislock(false),
		},
		{
			Name: "bsm/redislock, refreshed", Server: "redis",
			Settings: "the same; Refresh each third of the lease; Check: what came of it", Smallest: "redisfailover",
			Module: redislockModule, Promise: redislockPromise, Source: redisSource,
			Open: openRedislock(true),
		},
		redsyncLock("go-redsync/redsync, not extended", "redis", false),
		redsyncLock("go-redsync/redsync, extended", "redis", true),
		redsyncLock("go-redsync/redsync, extended", "redis3", true),
	}
}

// redisClients are pools that the lock shares with the application, one for each server.
type redisClients []*driver.Client

func openRedis(c Config) redisClients {
	logging.Disable() // that a server is gone is the point here

	var clients redisClients
	for _, address := range c.Servers {
		clients = append(clients, driver.NewClient(&driver.Options{
			Addr: address, PoolSize: c.Pool, ContextTimeoutEnabled: true,
		}))
	}

	return clients
}

// Close closes the pools.
func (c redisClients) Close() {
	for _, client := range c {
		_ = client.Close()
	}
}

// Fill takes all connections of each pool.
func (c redisClients) Fill(ctx context.Context) (free func(), err error) {
	var taken []*driver.Conn

	free = func() {
		for _, conn := range taken {
			_ = conn.Close()
		}
	}

	for _, client := range c {
		for range client.Options().PoolSize {
			conn := client.Conn()
			taken = append(taken, conn)

			// It takes a connection with its first command.
			if err := conn.Ping(ctx).Err(); err != nil {
				free()

				return nil, fmt.Errorf("taking all connections of the pool: %w", err)
			}
		}
	}

	return free, nil
}

// renewed runs a renewal again and again until it is stopped.
type renewed struct {
	stop func()
	done chan struct{}
}

// renewEach calls renew after each third of the lease, with that long to answer, until it says that there is no more to
// renew.
func renewEach(lease time.Duration, renew func(ctx context.Context) (more bool)) renewed {
	ctx, stop := context.WithCancel(context.Background())
	r := renewed{stop: stop, done: make(chan struct{})}

	go func() {
		defer close(r.done)

		tick := time.NewTicker(lease / 3)
		defer tick.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}

			if !renewWithin(ctx, lease/3, renew) {
				return
			}
		}
	}()

	return r
}

func renewWithin(ctx context.Context, timeout time.Duration, renew func(ctx context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	return renew(ctx)
}

// end stops it and waits for a renewal that is under way.
func (r renewed) end() {
	r.stop()
	<-r.done
}

type redislocker struct {
	redisClients

	locks   *redislock.Client
	lease   time.Duration
	refresh bool
}

func openRedislock(refresh bool) func(context.Context, Config) (Locker, error) {
	return func(_ context.Context, c Config) (Locker, error) {
		clients := openRedis(c)

		return &redislocker{clients, redislock.New(clients[0]), c.Lease, refresh}, nil
	}
}

// Acquire waits for the lock.
func (l *redislocker) Acquire(ctx context.Context, name string) (Held, error) {
	// Without a deadline, Obtain would wait no longer than a lease.
	waiting, cancel := context.WithDeadline(ctx, time.Now().Add(24*time.Hour))
	defer cancel()

	began := time.Now()

	lock, err := l.locks.Obtain(waiting, name, l.lease, &redislock.Options{
		RetryStrategy: &sent{redislock.LinearBackoff(100 * time.Millisecond), &began},
	})
	if err != nil {
		return nil, err
	}

	if !l.refresh {
		return redislockHeld{lock, l.lease}, nil
	}

	held := &redislockRefreshed{lock: lock, lease: l.lease, last: began}
	held.loop = renewEach(l.lease, held.refresh)

	return held, nil
}

// sent notes when the last attempt began at the earliest: when the wait before it began.
type sent struct {
	redislock.RetryStrategy

	at *time.Time
}

// NextBackoff is asked for after each attempt that failed.
func (s *sent) NextBackoff() time.Duration {
	*s.at = time.Now()

	return s.RetryStrategy.NextBackoff()
}

type redislockHeld struct {
	lock  *redislock.Lock
	lease time.Duration
}

// Check asks the server for the time that is left. No answer is no leave to act.
func (h redislockHeld) Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), h.lease/3)
	defer cancel()

	left, err := h.lock.TTL(ctx)

	switch {
	case err != nil:
		return fmt.Errorf("asking for the TTL: %w", err)
	case left <= 0:
		return errors.New("the TTL has passed")
	default:
		return nil
	}
}

func (redislockHeld) Token() int64 { return 0 }

func (h redislockHeld) Release(ctx context.Context) error { return h.lock.Release(ctx) }

type redislockRefreshed struct {
	lock  *redislock.Lock
	lease time.Duration
	loop  renewed

	mu sync.Mutex
	// last is when the last refresh that succeeded was sent.
	last time.Time
	lost error
}

func (h *redislockRefreshed) refresh(ctx context.Context) bool {
	began := time.Now()
	err := h.lock.Refresh(ctx, h.lease, nil)

	h.mu.Lock()
	defer h.mu.Unlock()

	switch {
	case err == nil:
		h.last = began
	case errors.Is(err, redislock.ErrNotObtained):
		h.lost = err
	}

	return h.lost == nil
}

// Check looks at what came of the refreshes.
func (h *redislockRefreshed) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.lost != nil {
		return h.lost
	}

	if since := time.Since(h.last); since >= h.lease {
		return fmt.Errorf("no refresh has succeeded for %s", since)
	}

	return nil
}

func (*redislockRefreshed) Token() int64 { return 0 }

// Release ends the refreshes, and frees the lock.
func (h *redislockRefreshed) Release(ctx context.Context) error {
	h.loop.end()

	return h.lock.Release(ctx)
}

func redsyncLock(name, server string, extend bool) Lock {
	settings, smallest := "tried each 50 to 250 ms; Check: Until", ""
	if extend {
		settings += "; Extend each third of the lease"
		smallest = map[string]string{"redis": "redisfailover", "redis3": "redsyncrestart"}[server]
	}

	return Lock{
		Name: name, Server: server, Settings: settings, Brief: !extend, Smallest: smallest,
		Module: redsyncModule, Promise: redsyncPromise, Source: redisSource,
		Open: func(_ context.Context, c Config) (Locker, error) {
			clients := openRedis(c)

			var pools []syncredis.Pool
			for _, client := range clients {
				pools = append(pools, goredis.NewPool(client))
			}

			return &redsyncLocker{clients, redsync.New(pools...), c.Lease, extend}, nil
		},
	}
}

type redsyncLocker struct {
	redisClients

	locks  *redsync.Redsync
	lease  time.Duration
	extend bool
}

// Acquire waits for the lock.
func (l *redsyncLocker) Acquire(ctx context.Context, name string) (Held, error) {
	mutex := l.locks.NewMutex(name, redsync.WithExpiry(l.lease), redsync.WithTries(math.MaxInt32))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, errors.Join(err, ctx.Err())
	}

	held := &redsyncHeld{mutex: mutex, until: mutex.Until()}
	if l.extend {
		held.loop = renewEach(l.lease, held.extend)
	} else {
		held.loop = renewed{stop: func() {}, done: closed()}
	}

	return held, nil
}

func closed() chan struct{} {
	done := make(chan struct{})
	close(done)

	return done
}

type redsyncHeld struct {
	mutex *redsync.Mutex
	loop  renewed

	mu    sync.Mutex
	until time.Time
	lost  error
}

// extend is the only one that uses the mutex until the loop has ended.
func (h *redsyncHeld) extend(ctx context.Context) bool {
	ok, err := h.mutex.ExtendContext(ctx)

	h.mu.Lock()
	defer h.mu.Unlock()

	// An error of a server leaves open what it did: the next attempt tells, or the time runs out.
	var taken *redsync.ErrTaken

	switch {
	case ok:
		h.until = h.mutex.Until()
	case errors.As(err, &taken), errors.Is(err, redsync.ErrExtendFailed):
		h.lost = err
	}

	return h.lost == nil
}

// Check looks at the time until which the lock is valid.
func (h *redsyncHeld) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()

	if h.lost != nil {
		return h.lost
	}

	if !time.Now().Before(h.until) {
		return errors.New("the time until which the lock was valid has passed")
	}

	return nil
}

func (*redsyncHeld) Token() int64 { return 0 }

// Release ends the extensions, and frees the lock.
func (h *redsyncHeld) Release(ctx context.Context) error {
	h.loop.end()

	_, err := h.mutex.UnlockContext(ctx)

	return err
}
