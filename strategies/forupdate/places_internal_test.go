package forupdate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sqllock/sqllock/strategies"
)

func placesOf(conns int) *places { return newPlaces(func() int { return conns }) }

func TestPlacesInOrderOfArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := placesOf(2)

		if err := p.take(); err != nil {
			t.Fatalf("take() = %v, want nil", err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan int)

		var want, got []int

		for i := range 20 {
			waits := t.Context()
			if i%3 == 0 {
				waits = ctx
			} else {
				want = append(want, i)
			}

			go func() {
				if err := p.wait(waits, nil, func(error) {}); err == nil {
					served <- i
				} else if !errors.Is(err, strategies.ErrTooManyConnections) {
					t.Errorf("wait() whose context ended = %v, want ErrTooManyConnections", err)
				}
			}()

			synctest.Wait()
		}

		cancel()
		synctest.Wait()

		if n := len(p.line); n != len(want) {
			t.Errorf("%d wait in line after the contexts of others ended, want %d", n, len(want))
		}

		for range want {
			if err := p.take(); !errors.Is(err, strategies.ErrTooManyConnections) {
				t.Errorf("take() beside those who wait = %v, want ErrTooManyConnections", err)
			}

			p.leave("")

			got = append(got, <-served)
		}

		if !slices.Equal(got, want) {
			t.Errorf("places went to %v, want %v", got, want)
		}

		p.leave("")

		if p.taken != 0 {
			t.Errorf("%d places are taken at the end, want none", p.taken)
		}
	})
}

// The place that comes when its waiter goes is the next one's.
func TestPlaceOfOneWhoGoesIsNotLost(t *testing.T) {
	t.Parallel()

	for range 1000 {
		p := placesOf(2)

		if err := p.take(); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		waited, next := make(chan error, 1), make(chan error, 1)

		go func() { waited <- p.wait(ctx, nil, func(error) {}) }()
		go func() { next <- p.wait(t.Context(), nil, func(error) {}) }()
		go cancel()

		p.leave("")

		if <-waited == nil {
			p.leave("")
		}

		if err := <-next; err != nil {
			t.Fatalf("wait() = %v, want the place", err)
		}

		if p.taken != 1 {
			t.Fatalf("%d places are taken, want 1", p.taken)
		}
	}
}

func TestPlacesWithoutLimit(t *testing.T) {
	t.Parallel()

	p := placesOf(0)

	for range 1000 {
		if err := p.take(); err != nil {
			t.Fatalf("take() = %v, want nil", err)
		}
	}
}

// TestNobodyCouldGiveUpAPlace: all have locks under which another place is waited for. The last to wait is told.
func TestNobodyCouldGiveUpAPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := placesOf(3)
		waited := make(chan error)
		wait := func(holding ...string) {
			go func() { waited <- p.wait(t.Context(), holding, func(error) {}) }()

			synctest.Wait()
		}

		for _, owner := range []string{"a", "b"} {
			if err := p.take(); err != nil {
				t.Fatal(err)
			}

			p.keep(owner)
		}

		wait("a", "elsewhere")
		wait() // under no lock
		wait("a", "elsewhere")
		wait("b")

		if err := <-waited; !errors.Is(err, strategies.ErrDeadlock) {
			t.Errorf("wait() of the last = %v, want ErrDeadlock", err)
		}

		// It gives up, and the others are served in turn.
		for _, owner := range []string{"b", "", ""} {
			p.leave(owner)

			if err := <-waited; err != nil {
				t.Errorf("wait() = %v, want a place", err)
			}
		}

		// An attempt has a place for a moment only.
		wait("a")

		select {
		case err := <-waited:
			t.Errorf("wait() beside an attempt = %v, want that it waits", err)
		default:
		}

		p.leave("")

		if err := <-waited; err != nil {
			t.Errorf("wait() = %v, want a place", err)
		}
	})
}
