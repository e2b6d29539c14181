package demo

import (
	"io"
	"testing"
	"time"
)

// TestChecks makes sure that the demo can fail.
func TestChecks(t *testing.T) {
	t.Parallel()

	const s = time.Second

	good := func() []hold {
		return []hold{
			{worker: 1, token: 1, from: 1 * s, to: 2 * s},
			{worker: 2, token: 2, from: 3 * s, to: 4 * s, killed: true},
			{worker: 3, token: 3, from: 6 * s, to: 7 * s},
		}
	}

	for _, c := range []struct {
		what string
		make func([]hold) []hold
		fail int // which check; -1 is none
	}{
		{"all is well", func(h []hold) []hold { return h }, -1},
		{"two at once", func(h []hold) []hold { h[0].to = 3*s + 1; return h }, 0},
		{"an end that is not known", func(h []hold) []hold { h[0].open = true; return h }, 0},
		{"the same token twice", func(h []hold) []hold { h[2].token = 2; return h }, 1},
		{"one worker alone", func(h []hold) []hold { h[0].worker, h[2].worker = 2, 2; return h }, 2},
		{"nobody killed", func(h []hold) []hold { h[1].killed = false; return h }, 3},
		{"nobody took over", func(h []hold) []hold { return h[:2] }, 3},
		{"a late take-over", func(h []hold) []hold { h[2].from, h[2].to = 60*s, 61*s; return h }, 3},
	} {
		found := checks(c.make(good()), 4*s, 2*s)

		for i, check := range found {
			// Fewer holds may mean fewer hand-overs too.
			if check.ok != (i != c.fail) && c.fail <= i {
				t.Errorf("%s: check %d = %t (%s)", c.what, i, check.ok, check.text)
			}
		}
	}
}

// TestLateEnd makes sure that a killed worker does not seem to hold the lock for
// as long as nobody looked.
func TestLateEnd(t *testing.T) {
	t.Parallel()

	const s = time.Second

	d := Demo{Out: io.Discard, killedAt: 4 * s, workers: []*process{{number: 1, killed: true}, {number: 2}}}

	d.take(report{worker: 1, event: event{Kind: acquired, Token: 1, At: 3 * s}})
	d.take(report{worker: 2, event: event{Kind: acquired, Token: 2, At: 6 * s}})
	d.take(report{worker: 1, event: event{At: 7 * s}, ended: true})

	if c := exclusive(d.holds); !c.ok {
		t.Error(c.text)
	}
}
