package prometheus

import "time"

// period is how long a renewal counts for the closest call, at least. Twice that is the most.
const period = 5 * time.Minute

// closest is the least of the durations of the last one to two periods. A gauge that a scrape resets would
// tell each of two Prometheus servers only a part, and one that is never reset would keep an alert firing for ever.
type closest struct {
	began         time.Time // of the current period; zero before the first renewal
	current, last time.Duration
	inNow, inLast bool // whether there was any
}

// add takes what was left of a trust window.
func (c *closest) add(d time.Duration) {
	c.turn()

	if !c.inNow || d < c.current {
		c.current, c.inNow = max(d, 0), true
	}
}

// least returns the least; false if there was none.
func (c *closest) least() (time.Duration, bool) {
	c.turn()

	switch {
	case c.inNow && c.inLast:
		return min(c.current, c.last), true
	case c.inNow:
		return c.current, true
	default:
		return c.last, c.inLast
	}
}

// turn begins a new period if the current one is over.
func (c *closest) turn() {
	over := time.Since(c.began)
	if over < period {
		return
	}

	c.last, c.inLast = c.current, c.inNow && over < 2*period
	c.began, c.inNow = time.Now(), false
}
