package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/clock"
)

// Workers is how many processes there are.
const Workers = 3

// victim is the worker that is killed.
const victim = 2

// ErrCheck says that what the demo promised did not happen.
var ErrCheck = errors.New("a check failed")

// Demo is one demonstration.
type Demo struct {
	// Lease of the lock; all else takes a multiple of it.
	Lease time.Duration
	// Worker makes the command of a worker's process, which has to call Work
	// with its standard streams.
	Worker func() *exec.Cmd
	// Out is where the story is told.
	Out io.Writer

	began    time.Duration
	killedAt time.Duration
	workers  []*process
	reports  chan report
	holds    []hold
	failures []error
}

// Run takes about seven leases. It returns ErrCheck if a check failed.
func (d *Demo) Run(ctx context.Context) error {
	d.began = clock.Now()
	d.reports = make(chan report)

	defer d.stop()

	for number := 1; number <= Workers; number++ {
		w, err := start(number, d.Worker(), d.reports)
		if err != nil {
			return fmt.Errorf("start worker %d: %w", number, err)
		}

		d.workers = append(d.workers, w)
	}

	if err := d.tell(ctx); err != nil {
		return err
	}

	return d.judge()
}

// tell is the course of the demo.
func (d *Demo) tell(ctx context.Context) error {
	d.follow(ctx, 2*d.Lease, nil)

	// Now the victim keeps the lock, until it is killed.
	prey := d.workers[victim-1]
	prey.say(keepHolding)

	had := d.follow(ctx, 8*d.Lease+slack, func(r report) bool { return r.worker == victim && r.Kind == acquired })
	if had {
		had = !d.follow(ctx, d.Lease/2, func(r report) bool { return r.worker == victim })
	}

	if had {
		d.kill(prey)
	}

	if d.follow(ctx, d.Lease+slack, func(r report) bool { return r.Kind == acquired }) {
		d.follow(ctx, 2*d.Lease, nil)
	}

	for _, w := range d.workers {
		w.dismiss()
	}

	d.follow(ctx, d.Lease+slack, func(report) bool { return d.over() })

	return ctx.Err()
}

// follow takes in reports for so long, or until one that is looked for, and
// says whether that one came.
func (d *Demo) follow(ctx context.Context, limit time.Duration, wanted func(report) bool) bool {
	end := time.After(limit)

	for {
		select {
		case <-ctx.Done():
			return false
		case <-end:
			return false
		case r := <-d.reports:
			d.take(r)

			if wanted != nil && wanted(r) {
				return true
			}

			if d.over() {
				return false
			}
		}
	}
}

// over says whether every process has ended.
func (d *Demo) over() bool {
	return !slices.ContainsFunc(d.workers, func(w *process) bool { return !w.ended })
}

// take writes a report down.
func (d *Demo) take(r report) {
	last := slices.IndexFunc(d.holds, func(h hold) bool { return h.open && h.worker == r.worker })

	switch {
	case r.ended:
		d.takeEnd(r, last)
	case r.Kind == acquired:
		d.line(r.At, r.worker, d.verb(), fmt.Sprintf("token %d%s", r.Token, d.since(r.At)))
		d.holds = append(d.holds, hold{worker: r.worker, token: r.Token, from: r.At, open: true})
	case r.Kind == failed:
		d.line(clock.Now(), r.worker, "failed", r.Text)
		d.failures = append(d.failures, fmt.Errorf("worker %d: %s", r.worker, r.Text))
	case last >= 0:
		d.holds[last].to, d.holds[last].open = r.At, false
		d.line(r.At, r.worker, string(r.Kind), "after "+short(r.At-d.holds[last].from))
	}
}

// takeEnd writes the end of a process down.
func (d *Demo) takeEnd(r report, last int) {
	w := d.workers[r.worker-1]
	w.ended = true

	if last >= 0 {
		d.holds[last].to, d.holds[last].open = r.At, false

		if w.killed {
			// On a busy machine its end is seen long after it could do anything.
			d.holds[last].to, d.holds[last].killed = d.killedAt, true
		}
	}

	if r.err != nil && !w.killed {
		d.failures = append(d.failures, fmt.Errorf("worker %d ended: %w", r.worker, r.err))
	}
}

// kill kills a worker: from then on it cannot do anything under the lock.
func (d *Demo) kill(w *process) {
	w.killed = true
	w.kill()
	d.killedAt = clock.Now()
	d.line(d.killedAt, w.number, "SIGKILL", "while it holds the lock")
}

// stop leaves no process behind.
func (d *Demo) stop() {
	for _, w := range d.workers {
		w.dismiss()

		if !w.ended {
			w.kill()
		}
	}

	for !d.over() {
		d.take(<-d.reports)
	}
}

func (d *Demo) judge() error {
	ok := len(d.failures) == 0

	d.printf("\n")

	for _, c := range checks(d.holds, d.killedAt, d.Lease) {
		mark := "ok"
		if !c.ok {
			mark, ok = "FAILED", false
		}

		d.printf("  %-6s  %s\n", mark, c.text)
	}

	if !ok {
		return errors.Join(append([]error{ErrCheck}, d.failures...)...)
	}

	return nil
}
