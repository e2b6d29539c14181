package sqllock_test

import (
	"context"
	"runtime/debug"
	"testing"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// acquiring is a way to a lock.
type acquiring func(*sqllock.Locker, context.Context, string, ...sqllock.LockOption) (*sqllock.Lock, error)

// pairs are the ways to a lock that nobody else wants.
var pairs = []struct {
	name    string
	acquire acquiring
}{
	{"Acquire", (*sqllock.Locker).Acquire},
	{"TryAcquire", (*sqllock.Locker).TryAcquire},
}

// BenchmarkPair is what the client takes for an acquisition and a release, and the in-memory strategy for its part.
func BenchmarkPair(b *testing.B) {
	for _, way := range pairs {
		b.Run(way.name, func(b *testing.B) {
			pair := newPair(b, way.acquire)

			b.ReportAllocs()

			for b.Loop() {
				pair()
			}
		})
	}
}

// TestPairAllocatesLittle counts what BenchmarkPair reports. The race detector allocates, too, and is left out.
func TestPairAllocatesLittle(t *testing.T) {
	if raced() {
		t.Skip("the race detector allocates")
	}

	const most = 22

	for _, way := range pairs {
		pair := newPair(t, way.acquire)

		// The goroutines are there, and the maps have their size.
		for range 100 {
			pair()
		}

		if n := testing.AllocsPerRun(1000, pair); n > most {
			t.Errorf("%s and Release allocate %g times, want at most %d", way.name, n, most)
		}
	}
}

// newPair returns a function that acquires and releases a lock, with a context that can end.
func newPair(tb testing.TB, acquire acquiring) func() {
	tb.Helper()

	locker, err := sqllock.New(sqllocktest.NewMemory())
	if err != nil {
		tb.Fatal(err)
	}

	ctx, cancel := context.WithCancel(tb.Context())

	tb.Cleanup(func() {
		cancel()

		_ = locker.Close(context.WithoutCancel(ctx))
	})

	return func() {
		lock, err := acquire(locker, ctx, name)
		if err != nil {
			tb.Fatal(err)
		}

		if err := lock.Release(ctx); err != nil {
			tb.Fatal(err)
		}
	}
}

// raced says whether the tests were built with the race detector.
func raced() bool {
	info, _ := debug.ReadBuildInfo()

	for _, setting := range info.Settings {
		if setting.Key == "-race" {
			return setting.Value == "true"
		}
	}

	return false
}
