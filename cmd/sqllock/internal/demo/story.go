package demo

import (
	"fmt"
	"time"
)

// line tells of one thing that happened.
func (d *Demo) line(at time.Duration, worker int, what, more string) {
	d.printf("  %7.3fs  worker %d  %-9s  %s\n", (at - d.began).Seconds(), worker, what, more)
}

func (d *Demo) printf(format string, args ...any) { _, _ = fmt.Fprintf(d.Out, format, args...) }

// verb names the acquisition that comes next.
func (d *Demo) verb() string {
	if d.afterKill() {
		return "took over"
	}

	return string(acquired)
}

// since says how long the lock was nobody's.
func (d *Demo) since(at time.Duration) string {
	switch {
	case d.afterKill():
		return fmt.Sprintf(", %s after the kill", short(at-d.killedAt))
	case len(d.holds) == 0 || d.holds[len(d.holds)-1].open:
		return ""
	default:
		before := d.holds[len(d.holds)-1]

		return fmt.Sprintf(", %s after worker %d", short(at-before.to), before.worker)
	}
}

func (d *Demo) afterKill() bool { return len(d.holds) > 0 && d.holds[len(d.holds)-1].killed }
