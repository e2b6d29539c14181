package sqllock

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestPollPause(t *testing.T) {
	t.Parallel()

	const lowest, highest = time.Millisecond, time.Second

	for _, c := range []struct{ waited, most time.Duration }{
		{0, lowest},
		{100 * time.Millisecond, 3100 * time.Microsecond},
		{time.Second, 85 * time.Millisecond},
		{10 * time.Second, highest},
		{maxLease, highest},
	} {
		for range 100 {
			if got := pollPause(c.waited, lowest, highest); got < c.most*9/20 || got > c.most {
				t.Fatalf("after %s the pause is %s, want half of %s at least and that at most", c.waited, got, c.most)
			}
		}
	}

	// Whoever asks after each pause does not ask often.
	questions := 0
	for waited := time.Duration(0); waited < time.Second; waited += pollPause(waited, lowest, highest) {
		questions++
	}

	if questions > 200 {
		t.Errorf("%d questions in the first second, want at most 200", questions)
	}
}

// contender is one of several processes that have a lock in turns, in the time of
// a simulation.
type contender struct {
	pacing

	next   time.Duration // when it asks, or comes back
	since  time.Duration // when it saw the lock change hands
	waits  bool
	missed int // grants to others since it began to wait
}

// Whoever waits for long must not be so much slower than those who come anew that
// it never has a turn, whether it asks or is told; and many must not ask all the
// time.
func TestWaitIsFair(t *testing.T) {
	t.Parallel()

	told := func(c *contender, released time.Duration) time.Duration {
		return released + c.giveWay() + random(trip/2, trip)
	}
	asks := func(c *contender, _ time.Duration) time.Duration {
		return c.next + c.between(c.next-c.since) + random(trip/2, trip)
	}

	fresh := func(c *contender, released time.Duration) time.Duration {
		c.rivals = 0

		return asks(c, released)
	}

	for _, c := range []struct {
		way        string
		next       func(c *contender, released time.Duration) time.Duration
		contenders int
		missed     int // at most, between two turns of one; equal chances bring about half
		looks      int // at most, for a grant
	}{
		{"asks", asks, 2, 60, 20},
		{"asks", asks, 3, 100, 30},
		{"asks", asks, 8, 250, 70},
		{"asks", asks, 100, 4000, 400},
		{"asks and never did before", fresh, 8, 250, 120},
		{"asks and never did before", fresh, 100, 6000, 1200},
		{"told", told, 2, 60, 2},
		{"told", told, 3, 80, 3},
		{"told", told, 8, 250, 8},
	} {
		for _, hold := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
			missed, looks := simulate(c.contenders, hold, c.next)

			if missed > c.missed {
				t.Errorf("%d contenders, one of whom %s, hold for %s: it waited while others had the lock %d times, want at most %d",
					c.contenders, c.way, hold, missed, c.missed)
			}

			if looks > c.looks {
				t.Errorf("%d contenders, each of whom %s, hold for %s: %d looks for a grant, want at most %d",
					c.contenders, c.way, hold, looks, c.looks)
			}
		}
	}
}

// trip is how long the database takes to answer, at most.
const trip = 600 * time.Microsecond

// simulate returns the most grants to others that anybody waited for, and how often
// somebody looked in vain for each grant.
func simulate(
	contenders int, hold time.Duration, next func(c *contender, released time.Duration) time.Duration,
) (missed, looks int) {
	const grants = 5_000

	var (
		set      = defaults()
		all      = make([]contender, contenders)
		released time.Duration
	)

	for token := int64(1); token <= grants; {
		c := first(all)

		switch {
		case !c.waits:
			*c = contender{pacing: pacing{set: &set, rivals: c.rivals}, next: c.next, since: c.next, waits: true}
		case c.next >= released:
			token++
			released = c.next + random(hold*2/3, hold*3/2)
			*c = contender{
				pacing: pacing{rivals: learned(c.rivals, c.changes)}, next: released + random(hold/8, hold/2),
			}

			for i := range all {
				all[i].missed++
				missed = max(missed, all[i].missed)
			}
		default:
			if c.seen != token {
				c.since = c.next
			}

			looks++
			c.sees(token)
			c.next = next(c, released)
		}
	}

	return missed, looks / grants
}

func first(all []contender) *contender {
	earliest := &all[0]

	for i := range all {
		if all[i].next < earliest.next {
			earliest = &all[i]
		}
	}

	return earliest
}

func random(least, most time.Duration) time.Duration { return least + rand.N(most-least) }

// What was learned of a crowd is forgotten when it has gone.
func TestRivalsAreForgotten(t *testing.T) {
	t.Parallel()

	rivals := 0.0
	for range 100 {
		rivals = learned(rivals, 50)
	}

	if rivals < 45 || rivals > 50 {
		t.Errorf("after many waits with 50 changes of hands there are %.1f rivals, want about 50", rivals)
	}

	for range 100 {
		rivals = learned(rivals, 1)
	}

	if rivals > 1.1 {
		t.Errorf("after many waits with one change of hands there are %.1f rivals, want about 1", rivals)
	}
}
