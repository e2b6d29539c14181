package sqllock_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

func TestHooks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var (
			mu   sync.Mutex
			told []string
		)

		hook := func(what string) func(sqllock.Event) {
			return func(e sqllock.Event) {
				mu.Lock()
				defer mu.Unlock()

				told = append(told, what)

				if e.Name != name || e.Strategy != "memory" {
					t.Errorf("%s(%+v), want the lock's name and strategy", what, e)
				}
			}
		}

		memory, locker := setup(t, sqllock.WithHooks(sqllock.Hooks{
			Acquired: hook("acquired"), NotAcquired: hook("not acquired"), Renewed: hook("renewed"),
			RenewalFailed: hook("renewal failed"), Lost: hook("lost"), Released: hook("released"),
		}))

		lock := acquire(t, locker)

		_, err := locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire()", err, sqllock.ErrNotAcquired)

		time.Sleep(lease / 3)
		memory.Fail("renew", 1, sqllocktest.Before, nil)
		time.Sleep(lease / 2)

		if err := lock.Release(t.Context()); err != nil {
			t.Errorf("Release() = %v, want nil", err)
		}

		lock = acquire(t, locker)
		memory.Lose(name)
		<-lock.Done()
		synctest.Wait()

		_ = lock.Release(t.Context())

		mu.Lock()
		defer mu.Unlock()

		want := []string{
			"acquired", "not acquired", "renewed", "renewal failed", "renewed", "released", "acquired", "lost",
		}
		if !slices.Equal(told, want) {
			t.Errorf("hooks were called as %q, want %q", told, want)
		}
	})
}

func TestLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var out bytes.Buffer

		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		memory, locker := setup(t, sqllock.WithLogger(logger))
		lock := acquire(t, locker)

		time.Sleep(lease / 3)
		memory.Fail("renew", 1, sqllocktest.Before, nil)
		time.Sleep(lease / 3)
		memory.Lose(name)
		<-lock.Done()
		synctest.Wait() // It is logged after the context ended.

		for _, want := range []string{
			`level=DEBUG msg="lock acquired" name="the lock" strategy=memory token=`,
			`level=DEBUG msg="lock renewed"`,
			`level=WARN msg="lock not renewed, trying again"`,
			`level=WARN msg="lock lost"`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, out.String())
			}
		}
	})
}
