package failover_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/servers"
)

// TestCancelledWait: a commit that waits for the standby and is cancelled there,
// by an administrator, is acknowledged though the standby has not heard of it. What
// is promised of synchronous replication does not hold then; tokens and guards do.
func TestCancelledWait(t *testing.T) {
	t.Parallel()

	c := start(t, servers.Synchronous)
	dsn, s := c.dsn(t), leased[0]
	first, rival := newHolder(t, s, dsn), newRival(t, s, dsn)
	admin := open(t, c.PrimaryDSN())

	// The name's row is there: making it waits for the standby, too.
	if err := mustAcquire(t, rival, "cancelled").Release(t.Context()); err != nil {
		t.Fatalf("Release() = %v, want nil", err)
	}

	do(t, "catch up", c.CaughtUp)
	do(t, "cut the link", c.Cut)

	acquired := make(chan *sqllock.Lock)

	go func() {
		lock, err := first.Acquire(t.Context(), "cancelled", sqllock.WithoutRenewal(), sqllock.WithLease(outlastsAll))
		if err != nil {
			t.Errorf("Acquire() whose wait was cancelled = %v, want the lock", err)
		}

		acquired <- lock
	}()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	deadline := time.After(patience)

	var lost *sqllock.Lock

	for lost == nil {
		select {
		case <-tick.C:
			exec(t, admin, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		case lost = <-acquired:
			if lost == nil {
				return
			}
		case <-deadline:
			t.Fatalf("Acquire() did not return within %s", patience)
		}
	}

	c.failOver(t)

	next := mustAcquire(t, rival, lost.Name())
	if next.Token() <= lost.Token() {
		t.Errorf("token after the fail-over = %d, want more than that of the lost grant, %d", next.Token(), lost.Token())
	}

	wantLost(t, "Guard() of the lost grant", first.guard(t, lost))
}
