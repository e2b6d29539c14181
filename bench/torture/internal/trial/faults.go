package trial

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/event"
	"github.com/sqllock/sqllock/bench/torture/internal/judge"
	"github.com/sqllock/sqllock/bench/torture/internal/worker"
)

// all are the faults. Each returns when everything has happened that the judge is to see.
func all() map[judge.Fault]func(context.Context, *trial) error {
	return map[judge.Fault]func(context.Context, *trial) error{
		judge.Nothing:  nothing,
		judge.Killed:   killed,
		judge.Stopped:  stopped,
		judge.Cut:      func(ctx context.Context, t *trial) error { return cut(ctx, t, noRequests, noAnswers) },
		judge.Deaf:     func(ctx context.Context, t *trial) error { return cut(ctx, t, noAnswers) },
		judge.Slow:     slowAnswers,
		judge.Restart:  restart,
		judge.FailOver: failOver,
		judge.Clock:    clocks,
		judge.FullPool: fullPool,
		judge.Crowd:    crowded,
	}
}

func nothing(ctx context.Context, t *trial) error {
	holder, waiters, err := t.held(ctx)
	if err != nil {
		return err
	}

	return t.handOn(ctx, holder, waiters...)
}

// handOn has the lock held for the time of the work, and then given to the next.
func (t *trial) handOn(ctx context.Context, holder *process, waiters ...*process) error {
	sleep(ctx, t.work())

	if err := holder.Say(worker.Release); err != nil {
		return err
	}

	anyone(ctx, 2*t.Lease, waiters...)
	sleep(ctx, t.Lease/2)

	return nil
}

func killed(ctx context.Context, t *trial) error {
	holder, waiters, err := t.held(ctx)
	if err != nil {
		return err
	}

	sleep(ctx, t.before)
	holder.kill()
	anyone(ctx, 4*t.Lease, waiters...)
	sleep(ctx, t.Lease/2)

	return nil
}

// stopped stops the holder after it has looked at its lock and before it writes, and wakes it when another has written.
func stopped(ctx context.Context, t *trial) error {
	holder, waiters, err := t.held(ctx)
	if err != nil {
		return err
	}

	sleep(ctx, t.before)

	if err := holder.Say(worker.Stop); err != nil {
		return err
	}

	stops, err := holder.must(ctx, event.Stops, stopLimit)
	if err != nil {
		return err
	}

	anyone(ctx, 4*t.Lease, waiters...)
	sleep(ctx, t.Lease/2)

	if err := holder.wake(stops.At); err != nil {
		return err
	}

	sleep(ctx, t.Lease)

	return nil
}

// cut disturbs the holder's network, and heals it at last.
func cut(ctx context.Context, t *trial, toxics ...string) error {
	holder, waiters, err := t.held(ctx)
	if err != nil {
		return err
	}

	sleep(ctx, t.before)

	for _, l := range holder.links {
		if err := l.disturb(toxics...); err != nil {
			return err
		}
	}

	anyone(ctx, 4*t.Lease, waiters...)
	sleep(ctx, t.Lease)

	for _, l := range holder.links {
		l.heal(ctx)
	}

	sleep(ctx, t.Lease)

	return nil
}

// slowAnswers has one acquire whom all answers reach one and a half leases late.
func slowAnswers(ctx context.Context, t *trial) error {
	first, err := t.start(ctx)
	if err != nil {
		return err
	}

	second, err := t.start(ctx)
	if err != nil {
		return err
	}

	for _, l := range first.links {
		if err := l.disturb(late(t.Lease * 3 / 2)); err != nil {
			return err
		}
	}

	if err := first.Say(worker.Acquire); err != nil {
		return err
	}

	sleep(ctx, t.Lease/10)

	if err := t.wait(second); err != nil {
		return err
	}

	sleep(ctx, 6*t.Lease)

	return nil
}

// restart keeps the clients away until the server is ready again. One that is about to be can let them wait for tens of seconds, which is
// a matter of chance.
func restart(ctx context.Context, t *trial) error {
	_, waiters, err := t.held(ctx)
	if err != nil {
		return err
	}

	sleep(ctx, t.before)

	if err := t.server.Kill(ctx); err != nil {
		return err
	}

	if err := t.refuse(); err != nil {
		return err
	}

	sleep(ctx, beforeRestart)

	return t.after(ctx, t.server.Restart(ctx), waiters...)
}

func failOver(ctx context.Context, t *trial) error {
	holder, err := t.start(ctx)
	if err != nil {
		return err
	}

	var waiters []*process

	for range 2 {
		w, err := t.start(ctx)
		if err != nil {
			return err
		}

		waiters = append(waiters, w)
	}

	if err := t.server.Lag(ctx); err != nil {
		return err
	}

	if err := holder.Say(worker.Acquire); err != nil {
		return err
	}

	if _, err := holder.must(ctx, event.Held, startLimit); err != nil {
		return err
	}

	if err := t.wait(waiters...); err != nil {
		return err
	}

	sleep(ctx, t.before)

	return t.after(ctx, t.server.FailOver(ctx), waiters...)
}

// after watches what becomes of the lock on a server that is back, or another one.
func (t *trial) after(ctx context.Context, err error, waiters ...*process) error {
	if err != nil {
		return err
	}

	if err := t.redirect(); err != nil {
		return err
	}

	anyone(ctx, 4*t.Lease, waiters...)
	sleep(ctx, t.Lease)

	return nil
}

func clocks(ctx context.Context, t *trial) error {
	holder, waiters, err := t.held(ctx, []option{clock(wrongClock)}, []option{clock(-wrongClock)})
	if err != nil {
		return err
	}

	return t.handOn(ctx, holder, waiters...)
}

func fullPool(ctx context.Context, t *trial) error {
	holder, waiters, err := t.held(ctx)
	if err != nil {
		return err
	}

	if err := holder.Say(worker.Fill); err != nil {
		return err
	}

	if _, err := holder.must(ctx, event.Filled, stopLimit); err != nil {
		return err
	}

	sleep(ctx, t.work())

	if err := holder.Say(worker.Free); err != nil {
		return err
	}

	sleep(ctx, t.Lease/6)

	if err := holder.Say(worker.Release); err != nil {
		return err
	}

	anyone(ctx, 2*t.Lease, waiters...)
	sleep(ctx, t.Lease/2)

	return nil
}

// crowded has many ask for a lock that is held, one a moment after the other, and then pass it from each to the next.
func crowded(ctx context.Context, t *trial) error {
	holder, err := t.start(ctx)
	if err != nil {
		return err
	}

	var processes []*process

	for range crowdProcess {
		p, err := t.start(ctx, writesNothing)
		if err != nil {
			return err
		}

		processes = append(processes, p)
	}

	if err := holder.Say(worker.Acquire); err != nil {
		return err
	}

	if _, err := holder.must(ctx, event.Held, startLimit); err != nil {
		return err
	}

	for i := range crowd {
		if err := processes[i%crowdProcess].Say(worker.Pass); err != nil {
			return err
		}

		sleep(ctx, crowdPace)
	}

	sleep(ctx, t.Lease/6) // less than a lease in all

	if err := holder.Say(worker.Release); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, crowdLimit)
	defer cancel()

	for ctx.Err() == nil && passed(processes) < crowd {
		sleep(ctx, 50*time.Millisecond)
	}

	return nil
}

func passed(processes []*process) int {
	n := 0

	for _, p := range processes {
		for _, e := range p.record().Events {
			if e.Kind == event.Held {
				n++
			}
		}
	}

	return n
}
