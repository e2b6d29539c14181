package sqllock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// nothing is a strategy that grants nothing.
type nothing struct{ strategies.Strategy }

func (nothing) Acquire(_ context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return make([]strategies.Grant, len(requests)), slices.Repeat([]error{errors.New("no grant")}, len(requests))
}

func (nothing) Renew(_ context.Context, grants []strategies.Grant, _ time.Duration) []error {
	return make([]error, len(grants))
}

func (nothing) Release(_ context.Context, grants []strategies.Grant) ([]bool, []error) {
	return make([]bool, len(grants)), make([]error, len(grants))
}

func (nothing) ReapIdle(context.Context, time.Duration, int) (int, bool, error) { return 0, false, nil }

func (nothing) Features() strategies.Features { return strategies.Features{Unbatched: true} }
func (nothing) Validate() error               { return nil }
func (nothing) Close(context.Context)         {}

// keptHold is a lock that a locker of its own has, which grants none.
func keptHold(t *testing.T) *hold {
	t.Helper()

	locker, err := New(nothing{})
	if err != nil {
		t.Fatal(err)
	}

	h := &hold{
		locker: locker, settings: &locker.settings, request: strategies.Request{Name: "held"}, acquired: now(),
		state: state{lease: DefaultLease, extended: DefaultLease, confirmed: now()},
	}
	h.open(t.Context())
	locker.turns.openLocked(h.name)
	locker.keeper.keep(h)
	t.Cleanup(func() { locker.keeper.forget(h) })

	return h
}

// A lock that is lost leaves the keeper a moment after its holder was told.
func TestCloseAfterALoss(t *testing.T) {
	t.Parallel()

	h := keptHold(t)

	h.mu.Lock()
	h.ended = &LostError{Name: h.name, Reason: ReasonExpired}
	h.mu.Unlock()

	if err := h.locker.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// Who has seen that a lock is over is told so from then on. The keeper ends it, though the clock was set back before it looked.
func TestOverIsEnded(t *testing.T) {
	t.Parallel()

	h := keptHold(t)

	time.Sleep(10 * time.Millisecond) // the keeper looks at once, and then in a second

	h.mu.Lock()
	h.confirmed = ago(time.Hour)
	over := h.errLocked(now())
	h.confirmed = now()
	h.mu.Unlock()

	select {
	case <-h.ctx.Done():
	case <-time.After(5 * time.Second):
		t.Errorf("the context of a lock goes on that is %v", over)
	}

	if err := h.locker.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// ago is so long before now on both clocks.
func ago(d time.Duration) instant {
	n := now()

	return instant{mono: n.mono - d, wall: n.wall - d}
}

// TestConfirmInTime is a process that was paused: the answer of a renewal is
// there when it goes on, and may be looked at before the clock is.
func TestConfirmInTime(t *testing.T) {
	t.Parallel()

	const lease = 30 * time.Second

	for _, c := range []struct {
		name  string
		since time.Duration // the last confirmed renewal
		holds bool
	}{
		{"within the window", 20 * time.Second, true},
		{"after the window", 30 * time.Second, false},
	} {
		set := defaults()
		h := &hold{locker: new(Locker), settings: &set, state: state{lease: lease, confirmed: ago(c.since)}}

		// Begun within the window, confirmed now.
		h.confirm(ago(15*time.Second), lease)

		if holds := h.left(now()) > 0; holds != c.holds {
			t.Errorf("a renewal confirmed %s: holds = %t, want %t", c.name, holds, c.holds)
		}
	}
}
