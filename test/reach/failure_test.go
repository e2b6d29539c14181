package reach_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

const (
	before  = 5 * time.Second  // a load without a fault
	failing = 45 * time.Second // and with one
	lease   = 6 * time.Second
)

// TestNodeStopped stops a node for longer than a cluster waits for it, and lets it go on.
//
//nolint:paralleltest // one cluster after the other, each of which needs the machine
func TestNodeStopped(t *testing.T) {
	on(t, all, func(t *testing.T, s site) {
		t.Helper()

		if s.name == "PATRONI" {
			t.Skip("not run: a node of Patroni is many processes")
		}

		n := s.primary(t)
		pid := listener(t, n.address)

		fail(t, s, func() { signal(t, pid, syscall.SIGSTOP) })
		signal(t, pid, syscall.SIGCONT)
		takesWrites(t, s.processes[0])
	})
}

// TestNodeKilled kills a node, and starts it again.
//
//nolint:paralleltest // as above
func TestNodeKilled(t *testing.T) {
	on(t, all, func(t *testing.T, s site) {
		t.Helper()

		kill, start := s.command(t, "KILL"), s.command(t, "START")

		switch {
		case start == nil:
			t.Skipf("not run: %s has no command that starts a node again", s.variable("START"))
		case kill == nil && s.name == "PATRONI":
			t.Skipf("not run: %s has no command that kills a node, which is many processes", s.variable("KILL"))
		case kill == nil:
			kill = func(n node) { signal(t, listener(t, n.address), syscall.SIGKILL) }
		}

		n := s.primary(t)

		fail(t, s, func() { kill(n) })
		start(n)
		takesWrites(t, s.processes[0])
	})
}

// TestSwitchover has another node become the primary.
//
//nolint:paralleltest // as above
func TestSwitchover(t *testing.T) {
	on(t, onePrimary, func(t *testing.T, s site) {
		t.Helper()

		change := s.command(t, "SWITCH")
		if change == nil {
			t.Skipf("not run: %s has no command that makes another node the primary", s.variable("SWITCH"))
		}

		n := s.primary(t)

		fail(t, s, func() { change(n) })

		if now := s.primary(t); now.number == n.number {
			t.Errorf("the primary is node %d still, want another", n.number)
		}
	})
}

// fail lets a fault strike the first node, or the primary, and sees what holders and waiters are told, and who has grants
// meanwhile. A process that has only the node that fails loses its locks. One that finds the next primary may keep them.
func fail(t *testing.T, s site, strike func()) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), before+failing)
	defer cancel()

	here, err := s.processes[1].locker.Acquire(ctx, "here", sqllock.WithLease(2*failing))
	if err != nil {
		t.Fatal(err)
	}

	var (
		group sync.WaitGroup
		l     = newLoad()
		pairs = s.pairs(ctx, t)
	)

	for _, p := range s.processes[1:] {
		for i := range 3 {
			locker := s.locker(t, p, catalog.Leased()[i%2])

			group.Go(func() { l.work(ctx, locker) })
		}
	}

	group.Go(func() { l.try(ctx, s.processes[1].locker) })

	for _, p := range pairs {
		group.Go(func() { p.wait(t) })
	}

	<-time.After(before)

	for _, p := range pairs {
		if err := p.held.Err(); err != nil {
			t.Fatalf("%s: the lock was lost before the fault: %v", p.strategy, err)
		}
	}

	struck := time.Now()

	l.strike(struck)
	strike()

	// A command may take some seconds until it does what it is for.
	begun := time.Now()

	for _, p := range pairs {
		group.Go(func() { p.hold(ctx, l) })
	}

	<-ctx.Done()

	for _, p := range pairs {
		// Not before: who waits would have the lock although nothing happened to it.
		if err := p.held.Release(t.Context()); err != nil && !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("%s: Release() of the lock on the node that failed = %v, want nil or ErrLost", p.strategy, err)
		}
	}

	group.Wait()

	if err := here.Release(t.Context()); err != nil {
		t.Errorf("Release() of a lock elsewhere = %v, want nil", err)
	}

	t.Log(l.end())

	for _, p := range pairs {
		p.check(t, struck, begun, s.several)
	}

	for _, wrong := range l.wrong {
		t.Error(wrong)
	}
}
