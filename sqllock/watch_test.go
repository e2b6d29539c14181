package sqllock_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllocktest"
)

// Watch tells of a driver that does not return from a call, whichever of a look it is, and Close does not wait for that.
func TestWatchBesideADriverThatDoesNotReturn(t *testing.T) {
	t.Parallel()

	for _, operation := range []string{"notes", "status"} {
		t.Run(operation, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, locker := setup(t)
				_, resume := memory.Hang(operation, sqllocktest.Before)

				// Goroutines that outlive the bubble are an error.
				defer time.Sleep(time.Second)
				defer resume()

				looks := 0

				for status, err := range locker.Watch(t.Context(), name) {
					if looks++; looks == 1 {
						if err == nil {
							t.Errorf("the first of Watch() = %+v, want an error", status)
						}

						resume()

						continue
					}

					if err != nil || status.Held() {
						t.Errorf("Watch() when the driver has returned = %+v, %v, want that nobody has the lock", status, err)
					}

					break
				}

				_, resume = memory.Hang(operation, sqllocktest.Before)
				defer resume()

				go func() {
					for range locker.Watch(t.Context(), name) {
					}
				}()

				time.Sleep(10 * time.Millisecond)

				started := time.Now()

				if err := locker.Close(t.Context()); err != nil {
					t.Errorf("Close() = %v, want nil", err)
				}

				if took := time.Since(started); took > time.Second {
					t.Errorf("Close() took %s, want a moment", took)
				}
			})
		})
	}
}
