package sqllock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// Of a change of which nobody says what it was, the next in line look at once, and those behind them later.
func TestCalledInTheirTurns(t *testing.T) {
	t.Parallel()

	shared, permits := defaults(), defaults()
	shared.shared = true
	permits.permits = 3

	for _, test := range []struct {
		name     string
		ahead    int
		settings settings
		shared   bool
		want     time.Duration
	}{
		{"the first", 0, defaults(), false, 0},
		{"the second", 1, defaults(), false, 0},
		{"one in the middle", 51, defaults(), false, 100 * time.Millisecond},
		{"a reader", 51, shared, true, 0},
		{"one of many permits", 51, permits, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				w := &waiters{wake: make(chan struct{}, 1), asking: map[string]*waiting{"a": {
					Waiter: strategies.Waiter{ID: "a", Shared: test.shared}, set: &test.settings,
					entry: entry{stood: now, standing: strategies.Standing{Ahead: test.ahead}},
				}}}

				w.called("")

				if got := w.next.Sub(now); got != test.want {
					t.Errorf("with %d ahead it looks after %s, want %s", test.ahead, got, test.want)
				}

				// It is not put off by the next change.
				time.Sleep(60 * time.Millisecond)
				w.next = time.Time{}
				w.called("")

				if got := w.next.Sub(now); got != max(test.want, 60*time.Millisecond) {
					t.Errorf("at a second change it looks after %s, want %s", got, max(test.want, 60*time.Millisecond))
				}
			})
		})
	}
}

// A change of a name is of no account to who waits for another one.
func TestCalledForTheirName(t *testing.T) {
	t.Parallel()

	for name, looks := range map[string]bool{"": true, "mine": true, "other": false} {
		one := defaults()
		w := &waiters{wake: make(chan struct{}, 1), asking: map[string]*waiting{"a": {Waiter: strategies.Waiter{ID: "a", Name: "mine"}, set: &one}}}

		w.called(name)

		if got := !w.next.IsZero(); got != looks {
			t.Errorf("called for %q: it looks = %t, want %t", name, got, looks)
		}
	}
}
