package conformance_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestShutdown is a service that is told to stop while it acquires. What it sent is
// still on its way then, and arrives though its client has given it up: after what
// is sent to end it. When Close has returned nil nothing may be left, and nothing
// may come.
func TestShutdown(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			near, far, late := distant(t, server)

			for _, strategy := range catalog.All() {
				t.Run(strategy.Name, func(t *testing.T) { shutDown(t, strategy.Make(near), strategy.Make(far), late) })
			}
		})
	}
}

// distant returns a database, and the same behind a way that takes as long as is
// set, in nanoseconds.
func distant(t *testing.T, server string) (near, far databases.DB, late *atomic.Int64) {
	t.Helper()

	late = new(atomic.Int64)
	near, far = behind(t, server, true, func(client net.Conn, address string) { relay(client, address, late) })

	return near, far, late
}

// shutDown cancels acquisitions while they are under way and closes their locker.
func shutDown(t *testing.T, near, far strategies.Strategy, late *atomic.Int64) {
	t.Helper()

	const (
		calls = 3
		way   = 400 * time.Millisecond
	)

	looker := lockerOn(t, near)

	prefix := uniqueName() + "/"

	for range 4 {
		locker, err := sqllock.New(far)
		if err != nil {
			t.Fatal(err)
		}

		// Connected, and one statement is enough, because the names have their rows.
		for i := range calls {
			lock, err := locker.Acquire(t.Context(), fmt.Sprint(prefix, i))
			if err != nil {
				t.Fatalf("Acquire() = %v", err)
			}

			if err := lock.Release(t.Context()); err != nil {
				t.Fatalf("Release() = %v", err)
			}
		}

		// Long enough for the attempts to be sent, too short for them to arrive.
		late.Store(int64(way))

		ctx, cancel := context.WithTimeout(t.Context(), way/4)

		var group sync.WaitGroup

		for i := range calls {
			group.Go(func() { _, _ = locker.Acquire(ctx, fmt.Sprint(prefix, i)) })
		}

		<-ctx.Done()
		cancel()
		late.Store(0)

		if err := locker.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v, want nil: the database answers", err)
		}

		group.Wait()

		// What was sent has arrived by then.
		timer := time.NewTimer(2 * way)
		<-timer.C

		held, err := looker.Holders(t.Context(), sqllock.Filter{Prefix: prefix})
		if err != nil {
			t.Fatalf("Holders() = %v", err)
		}

		if len(held) > 0 {
			t.Errorf("%d of %d locks are held after Close, the first is %q, for %s", len(held), calls, held[0].Name, held[0].Remaining)
		}
	}
}

// relay connects a client with a server, to which everything comes late, in order,
// also when the client has gone.
func relay(client net.Conn, server string, late *atomic.Int64) {
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		_ = client.Close()

		return
	}

	go func() {
		_, _ = io.Copy(client, upstream)
		_ = client.Close()
	}()

	type packet struct {
		data []byte
		due  time.Time
	}

	packets := make(chan packet, 1024)

	go func() {
		defer close(packets)

		for {
			data := make([]byte, 16<<10)

			n, err := client.Read(data)
			packets <- packet{data[:n], time.Now().Add(time.Duration(late.Load()))}

			if err != nil {
				return
			}
		}
	}()

	for p := range packets {
		timer := time.NewTimer(time.Until(p.due))
		<-timer.C

		if _, err := upstream.Write(p.data); err != nil {
			break
		}
	}

	// The server has what it was sent, and answers nobody.
	_ = upstream.Close()

	for range packets { // until the client has gone
	}
}
