package detour_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/databases/internal/detour"
)

// TestAcquire: the first call waits for a connection that comes after so long, or never; another one finds an idle one.
func TestAcquire(t *testing.T) {
	t.Parallel()

	const never = time.Duration(-1)

	for name, c := range map[string]struct {
		first time.Duration
		idle  bool
		limit time.Duration
		want  int
		err   error
		took  time.Duration
	}{
		"at once":                {first: 0, idle: true, want: 1},
		"another is idle":        {first: never, idle: true, want: 2, took: 100 * time.Millisecond},
		"none is idle":           {first: time.Second, want: 1, took: time.Second},
		"both come":              {first: 100*time.Millisecond + 1, idle: true, want: 2, took: 100 * time.Millisecond},
		"none comes and it ends": {first: never, limit: time.Second, err: context.DeadlineExceeded, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.limit > 0 {
					var cancel context.CancelFunc

					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}

				var calls, out atomic.Int32

				acquire := func(ctx context.Context) (int, error) {
					call := int(calls.Add(1))

					wait := c.first
					if call > 1 {
						wait = 0
					}

					if wait != 0 {
						var came <-chan time.Time
						if wait > 0 {
							came = time.After(wait)
						}

						select {
						case <-came:
						case <-ctx.Done():
							return 0, ctx.Err()
						}
					}

					out.Add(1)

					return call, nil
				}

				began := time.Now()
				got, err := detour.Acquire(ctx, acquire, func() bool { return c.idle }, func(int) { out.Add(-1) })

				if took := time.Since(began); got != c.want || !errors.Is(err, c.err) || took != c.took {
					t.Errorf("Acquire() = %d, %v after %s, want %d, %v after %s", got, err, took, c.want, c.err, c.took)
				}

				<-time.After(time.Minute) // whoever asked once more has given back what came

				if got, want := int(out.Load()), min(c.want, 1); got != want {
					t.Errorf("%d connections are not given back, want %d", got, want)
				}
			})
		})
	}
}
