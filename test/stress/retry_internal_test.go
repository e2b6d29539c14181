//go:build unix

package stress

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestRedirectWithoutItsPort lets somebody else have the port of a link while the server is down, for a moment.
func TestRedirectWithoutItsPort(t *testing.T) {
	t.Parallel()

	server := listen(t, "127.0.0.1:0")

	opened, err := openLink(t.Context(), nowhere)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.close()

	opened.proxy.Stop()

	taken := listen(t, opened.address())
	time.AfterFunc(100*time.Millisecond, func() { _ = taken.Close() })

	if err := opened.redirect(t.Context(), server.Addr().String()); err != nil {
		t.Fatalf("redirect() while somebody else had the port = %v, want nil", err)
	}

	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", opened.address())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	if _, err := server.Accept(); err != nil {
		t.Error(err)
	}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	return listener
}

// TestPatiently checks that what prepares a round is tried again, and is a fault of the run when it never succeeds.
func TestPatiently(t *testing.T) {
	t.Parallel()

	timeout := errors.New("dial tcp: i/o timeout")
	calls := 0

	err := patiently(t.Context(), func() error {
		if calls++; calls < 3 {
			return timeout
		}

		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("patiently() = %v after %d calls, want nil after 3", err, calls)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	var fault ownError

	err = patiently(ctx, func() error { return timeout })
	if !errors.As(err, &fault) || !errors.Is(err, timeout) {
		t.Errorf("patiently() of what never succeeds = %v, want a fault of the run", err)
	}
}

// TestCouldNotRun runs a round whose set-up fails, which is no verdict on the locks.
func TestCouldNotRun(t *testing.T) {
	t.Parallel()

	h := &host{pair: Pair{"sqlite", "cas"}, database: filepath.Join(t.TempDir(), "there is no such folder", "locks.db")}

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	_, err := h.tryRound(ctx, DefaultSettings(), 1, io.Discard)
	if o := (Outcome{Err: err}); err == nil || o.verdict() != NotRun {
		t.Errorf("a round without a database: verdict = %d (%v), want %d: it could not be run", o.verdict(), err, NotRun)
	}
}
