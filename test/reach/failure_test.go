package reach_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
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
	for cluster := range clusters {
		t.Run(cluster, func(t *testing.T) {
			nodes := nodes(t, cluster)

			fail(t, nodes, func() { signal(t, nodes[0], syscall.SIGSTOP) })
			signal(t, nodes[0], syscall.SIGCONT)
			again(t, nodes[0])
		})
	}
}

// TestNodeKilled kills a node, and starts it again with the command that SQLLOCK_REACH_START_GALERA or _GROUP is, to which
// the number of the node is added.
//
//nolint:paralleltest // as above
func TestNodeKilled(t *testing.T) {
	for cluster := range clusters {
		t.Run(cluster, func(t *testing.T) {
			nodes := nodes(t, cluster)
			variable := "SQLLOCK_REACH_START_" + strings.ToUpper(cluster)

			command := strings.Fields(os.Getenv(variable))
			if len(command) == 0 {
				t.Skipf("not run: %s names no command that starts a node again", variable)
			}

			fail(t, nodes, func() { signal(t, nodes[0], syscall.SIGKILL) })

			start := exec.CommandContext(t.Context(), command[0], append(command[1:], "1")...)
			if out, err := start.CombinedOutput(); err != nil {
				t.Fatalf("%s 1: %v\n%s", os.Getenv(variable), err, out)
			}

			again(t, nodes[0])
		})
	}
}

func signal(t *testing.T, n node, sig syscall.Signal) {
	t.Helper()

	if err := syscall.Kill(n.pid, sig); err != nil {
		t.Fatal(err)
	}
}

// again waits until a node takes writes.
func again(t *testing.T, n node) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	for {
		lock, err := n.locker.Acquire(ctx, "again")
		if err == nil {
			if err := lock.Release(ctx); err != nil {
				t.Error(err)
			}

			return
		}

		select {
		case <-ctx.Done():
			t.Fatalf("the node takes no writes again: %v", err)
		case <-time.After(time.Second):
		}
	}
}

// load acquires a few names on the nodes that live, and notes each grant.
type load struct {
	mutex   sync.Mutex
	held    map[string]int64 // the token of the name's holder, zero if there is none
	last    map[string]int64 // the largest that was seen
	grants  int
	refused int
	latest  time.Time
	gap     time.Duration // the longest time without a grant
	wrong   []string
}

func (l *load) granted(lock *sqllock.Lock) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	name, now := lock.Name(), time.Now()

	if other := l.held[name]; other != 0 {
		l.wrong = append(l.wrong, fmt.Sprintf("%s was granted as %d while %d held it", name, lock.Token(), other))
	}

	if last := l.last[name]; lock.Token() <= last {
		l.wrong = append(l.wrong, fmt.Sprintf("%s was granted as %d after %d", name, lock.Token(), last))
	}

	l.held[name], l.last[name] = lock.Token(), lock.Token()
	l.grants++

	if !l.latest.IsZero() {
		l.gap = max(l.gap, now.Sub(l.latest))
	}

	l.latest = now
}

// ended is told when a lock may not be trusted any more.
func (l *load) ended(lock *sqllock.Lock) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.held[lock.Name()] == lock.Token() {
		l.held[lock.Name()] = 0
	}
}

func (l *load) run(ctx context.Context, n node) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, lease)
		lock, err := n.locker.Acquire(limited, "load-"+strconv.Itoa(rand.IntN(3)), sqllock.WithLease(lease))

		cancel()

		if err != nil {
			l.mutex.Lock()
			l.refused++
			l.mutex.Unlock()

			continue
		}

		l.granted(lock)

		select {
		case <-lock.Done():
		case <-time.After(rand.N(20 * time.Millisecond)):
		}

		l.ended(lock)

		brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
		_ = lock.Release(brief)

		cancel()
	}
}

// fail lets a fault strike the first node, and sees what holders on it and elsewhere are told, and who has grants meanwhile.
func fail(t *testing.T, nodes []node, strike func()) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), before+failing)
	defer cancel()

	there, err := nodes[0].locker.Acquire(ctx, "there", sqllock.WithLease(lease))
	if err != nil {
		t.Fatal(err)
	}

	here, err := nodes[1].locker.Acquire(ctx, "here", sqllock.WithLease(failing))
	if err != nil {
		t.Fatal(err)
	}

	var (
		group sync.WaitGroup
		l     = load{held: make(map[string]int64), last: make(map[string]int64)}
		next  *sqllock.Lock
		nexts error
	)

	for _, n := range nodes[1:] {
		for range 3 {
			group.Go(func() { l.run(ctx, n) })
		}
	}

	group.Go(func() { next, nexts = nodes[1].locker.Acquire(ctx, "there", sqllock.WithLease(lease)) })

	select {
	case <-there.Done():
		t.Fatalf("the lock on the first node was lost before the fault: %v", there.Err())
	case <-time.After(before):
	}

	strike()

	struck := time.Now()

	select {
	case <-there.Done():
	case <-ctx.Done():
		t.Error("the holder on the node that failed was told nothing")
	}

	told := time.Now()

	group.Wait()

	switch {
	case nexts != nil:
		t.Errorf("who waited for the lock of the node that failed: %v", nexts)
	case next.Token() <= there.Token():
		t.Errorf("the next token is %d, want more than %d", next.Token(), there.Token())
	case told.After(struck.Add(lease)):
		t.Errorf("the holder was told %s after the fault, want before the lease of %s ends", told.Sub(struck), lease)
	}

	if err := there.Err(); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("the holder on the node that failed was told %v, want ErrLost", err)
	}

	if err := here.Check(t.Context()); err != nil {
		t.Errorf("Check() of a lock elsewhere = %v, want nil", err)
	}

	t.Logf("%d grants, %d attempts without, %s without a grant at most; the holder there was told after %s",
		l.grants, l.refused, l.gap.Round(time.Millisecond), told.Sub(struck).Round(time.Millisecond))

	for _, wrong := range l.wrong {
		t.Error(wrong)
	}

	_ = here.Release(t.Context())

	if next != nil {
		_ = next.Release(t.Context())
	}
}
