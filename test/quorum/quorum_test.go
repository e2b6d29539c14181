package quorum_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/sqllock/sqllock/sqllock"
)

func TestMain(m *testing.M) {
	// One of the toxics writes to the global logger.
	zerolog.SetGlobalLevel(zerolog.Disabled)

	goleak.VerifyTestMain(m,
		// A connection that was given up closes in the background.
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"),
	)
}

// keeps fails if the lock is lost before d has passed.
func keeps(t *testing.T, lock *sqllock.Lock, d time.Duration, while string) {
	t.Helper()

	select {
	case <-lock.Done():
		t.Errorf("Err() while %s = %v, want nil", while, lock.Err())
	case <-time.After(d):
	}
}

// refused fails unless the other process is told who has the lock.
func refused(t *testing.T, p process, lock *sqllock.Lock) {
	t.Helper()

	var held *sqllock.HeldError
	if _, err := p.TryAcquire(t.Context(), lock.Name()); !errors.As(err, &held) || held.Token != lock.Token() {
		t.Errorf("TryAcquire() of a held lock = %v, want a *HeldError with token %d", err, lock.Token())
	}
}

// TestServers holds a lock while each of the servers in turn is down, is slow, or says nothing, for the holder's process and
// for the other one, and comes back.
func TestServers(t *testing.T) {
	t.Parallel()

	for what, fault := range map[string]struct {
		begin func(p process, i int, lease time.Duration)
		end   func(p process, i int)
	}{
		"down":   {func(p process, i int, _ time.Duration) { p.down(i) }, process.up},
		"slow":   {func(p process, i int, lease time.Duration) { p.slow(i, lease/4) }, process.heal}, // a server has an eighth
		"silent": {func(p process, i int, _ time.Duration) { p.silent(i) }, process.heal},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			all := start(t)
			lease := leaseOn(t, all)
			p, other := newProcess(t, all, lease), newProcess(t, all, lease)

			fault.begin(p, 0, lease)

			began := time.Now()
			lock := p.acquire("a")

			if took := time.Since(began); took > lease/2 {
				t.Errorf("Acquire() while a server is %s took %s, want less than %s", what, took, lease/2)
			}

			refused(t, other, lock)
			keeps(t, lock, lease/2, "server 1 is "+what)
			fault.end(p, 0)
			keeps(t, lock, lease, "all servers are back")

			// It is on the first by now, so that the next may go.
			fault.begin(p, 1, lease)
			keeps(t, lock, lease, "server 2 is "+what)
			refused(t, other, lock)
			fault.begin(other, 2, lease)
			p.release(lock)

			next := other.acquire("a")
			if next.Token() <= lock.Token() {
				t.Errorf("token of the next = %d, want more than %d", next.Token(), lock.Token())
			}

			other.release(next)
			fault.end(p, 1)
			fault.end(other, 2)
			p.close()
			other.close()
		})
	}
}

// TestTwoServersDown: without a majority the lock ends in time, and nobody is said to have the name.
func TestTwoServersDown(t *testing.T) {
	t.Parallel()

	all := start(t)
	lease := leaseOn(t, all)
	p, other := newProcess(t, all, lease), newProcess(t, all, lease)
	lock := p.acquire("a")
	began := time.Now()

	p.down(0)
	p.down(2)

	select {
	case <-lock.Done():
		if took := time.Since(began); took > lease {
			t.Errorf("the lock ended %s after its servers did, want within its lease of %s", took, lease)
		}
	case <-time.After(lease + patience):
		t.Fatalf("the lock did not end within %s", lease+patience)
	}

	if _, err := p.TryAcquire(t.Context(), "b"); !errors.Is(err, sqllock.ErrUnreachable) || errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("TryAcquire() without a majority = %v, want ErrUnreachable", err)
	}

	next := other.acquire("a")
	if next.Token() <= lock.Token() {
		t.Errorf("token of the next = %d, want more than %d", next.Token(), lock.Token())
	}

	other.release(next)
	p.up(0)
	p.up(2)

	_ = lock.Release(t.Context())

	p.close()
	other.close()
}

// TestRestored: a server that was of the majority loses its data. Two hold the lock until the first renews, and the tokens
// tell them apart.
func TestRestored(t *testing.T) {
	t.Parallel()

	all := start(t)
	lease := leaseOn(t, all)
	p, other := newProcess(t, all, lease), newProcess(t, all, lease)

	p.down(2)

	first := p.acquire("a")

	all[1].wipe(t)

	began := time.Now()
	second := other.acquire("a")

	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d, want that they grow", second.Token(), first.Token())
	}

	select {
	case <-first.Done():
		if took := time.Since(began); took > lease*2/3 {
			t.Errorf("the first learned of it %s later, want by its next renewal, after %s", took, lease/3)
		}
	case <-time.After(lease + patience):
		t.Fatalf("the first did not learn of it within %s", lease+patience)
	}

	if err := second.Check(t.Context()); err != nil {
		t.Errorf("Check() of the second = %v, want nil", err)
	}

	other.release(second)
	p.up(2)

	_ = first.Release(t.Context())

	p.close()
	other.close()
}
