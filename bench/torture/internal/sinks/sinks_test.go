package sinks_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/bench/torture/internal/servers"
	"github.com/sqllock/sqllock/bench/torture/internal/sinks"
)

func TestFile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "file")

	check(t, func(_ context.Context, name string, checked bool) (sinks.Sink, error) {
		return sinks.OpenFile(path+name, checked)
	})
}

// TestFileLocked: a write does not wait for somebody who stopped with the lock.
func TestFileLocked(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "file")

	sink, err := sinks.OpenFile(path, true)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()

	other, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()

	if n, err := sink.Write(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("write %d, %v, of a file that somebody has locked", n, err)
	}
}

func TestRow(t *testing.T) {
	t.Parallel()

	ctx := t.Context()

	server, err := servers.Start(ctx, "postgres", false)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()

	dsn := server.DSN(0, server.Endpoints()[0])

	for range 2 { // it may be done again
		if err := sinks.PrepareRows(ctx, dsn); err != nil {
			t.Fatal(err)
		}

		for _, name := range []string{"checked", "plain"} {
			if err := sinks.PrepareRow(ctx, dsn, name); err != nil {
				t.Fatal(err)
			}
		}
	}

	if _, err := sinks.OpenRow(ctx, dsn, "missing", false); err == nil {
		t.Error("a row was opened that nobody made")
	}

	check(t, func(ctx context.Context, name string, checked bool) (sinks.Sink, error) {
		return sinks.OpenRow(ctx, dsn, name, checked)
	})
}

func check(t *testing.T, open func(ctx context.Context, name string, checked bool) (sinks.Sink, error)) {
	t.Helper()

	ctx := t.Context()

	checked, err := open(ctx, "checked", true)
	if err != nil {
		t.Fatal(err)
	}
	defer checked.Close()

	for _, write := range []struct{ token, want int64 }{{5, 1}, {5, 2}, {1_764_000_000_000_000, 3}, {6, 0}, {1_764_000_000_000_001, 4}} {
		n, err := checked.Write(ctx, write.token)
		if n != write.want || errors.Is(err, sinks.ErrRefused) != (write.want == 0) {
			t.Errorf("write with token %d: %d, %v, and not %d", write.token, n, err, write.want)
		}
	}

	plain, err := open(ctx, "plain", false)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()

	other, err := open(ctx, "plain", false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()

	const writes = 40

	var (
		running sync.WaitGroup
		numbers sync.Map
	)

	for i := range writes {
		running.Go(func() {
			n, err := []sinks.Sink{plain, other}[i%2].Write(ctx, int64(writes-i))
			if err != nil {
				t.Error(err)
			}

			if _, twice := numbers.LoadOrStore(n, true); twice || n < 1 || n > writes {
				t.Errorf("number %d, twice: %v", n, twice)
			}
		})
	}

	running.Wait()
}
