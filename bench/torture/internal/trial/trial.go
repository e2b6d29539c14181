// Package trial does one thing to one lock: it starts the processes that want it, does what the fault is, and hands what they told
// to the judge.
package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/event"
	"github.com/sqllock/sqllock/bench/torture/internal/judge"
	"github.com/sqllock/sqllock/bench/torture/internal/locks"
	"github.com/sqllock/sqllock/bench/torture/internal/servers"
	"github.com/sqllock/sqllock/bench/torture/internal/sinks"
	"github.com/sqllock/sqllock/bench/torture/internal/worker"
)

// Setting is what the trials of a run have in common.
type Setting struct {
	Program string        // this one, which is started again as worker
	Lease   time.Duration // of all locks that let one choose
	Rows    string        // DSN of the database of the protected rows
	Events  string        // folder that gets what the processes of each trial told; "" for none
}

// The size of a trial.
const (
	pool          = 4 // connections of a process
	crowdPool     = 8 // of one with a part of the crowd
	crowd         = 200
	crowdProcess  = 8
	crowdPace     = 5 * time.Millisecond // one asks after the other
	crowdLimit    = 90 * time.Second
	startLimit    = 60 * time.Second
	wrongClock    = time.Minute
	stopLimit     = 5 * time.Second
	beforeRestart = 500 * time.Millisecond
)

// errNoPool reports that a lock shares no pool with the application.
var errNoPool = errors.New("it shares no pool of connections with the application")

// trial is one that is under way.
type trial struct {
	Setting

	lock   locks.Lock
	server servers.Server
	name   string
	files  string

	// When the lock is asked for, in a second of the wall clock, and how long it is held before the fault.
	within, before time.Duration

	all []*process
}

// Run does the fault to the lock on the server, and judges. The number tells trials of a run apart. In each round the lock is asked for
// at another moment of a second, as some locks keep whole seconds, and the fault comes at another one between two renewals, which are a
// third of the lease apart, or less.
func (s Setting) Run(
	ctx context.Context, lock locks.Lock, fault judge.Fault, server servers.Server, number, round int,
) judge.Cell {
	cell := judge.Cell{Lock: lock.ID(), Fault: fault}

	steps, ok := all()[fault]
	if !ok {
		return cell.Fail(fmt.Errorf("there is no fault %q", fault))
	}

	t := &trial{
		Setting: s, lock: lock, server: server, name: fmt.Sprintf("torture-%d", number),
		within: spread(round, 0.7549, time.Second), before: s.Lease/2 + spread(round, 0.5698, s.Lease/3),
	}

	defer t.end()

	err := t.begin(ctx)
	if err == nil {
		err = steps(ctx, t)
	}

	switch {
	case errors.Is(err, errNoPool):
		return cell.Missing(err)
	case err != nil:
		return cell.Fail(err)
	}

	end := event.Clock()

	// Those who are at the end of their time still tell what they wrote.
	sleep(ctx, 100*time.Millisecond)

	var told []judge.Process

	for _, p := range t.all {
		if err := p.broke(); err != nil {
			return cell.Fail(err)
		}

		told = append(told, p.record())
	}

	cell = judge.Judge(cell, told, end, s.Lease)
	if s.Events == "" {
		return cell
	}

	text, err := json.Marshal(told)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Events, fmt.Sprintf("%s-%d-%s.json", fault, number, cell.Kind)), text, 0o600)
	}

	if err != nil {
		return cell.Fail(err)
	}

	return cell
}

// spread is the next of times that are all over a span, however many there are. The two steps, 1/x and 1/x² with x³ = x + 1, keep pairs of
// them all over the plane: https://extremelearning.com.au/unreasonable-effectiveness-of-quasirandom-sequences/.
func spread(round int, step float64, span time.Duration) time.Duration {
	_, part := math.Modf(0.5 + float64(round)*step)

	return time.Duration(part * float64(span))
}

func (t *trial) begin(ctx context.Context) error {
	var err error

	if t.files, err = os.MkdirTemp("", "torture-"); err != nil {
		return err
	}

	return sinks.PrepareRow(ctx, t.Rows, t.name)
}

func (t *trial) end() {
	for _, p := range t.all {
		p.end()
	}

	_ = os.RemoveAll(t.files)
}

// option changes a job before its process starts.
type option func(*worker.Job)

func clock(ahead time.Duration) option { return func(j *worker.Job) { j.Clock = ahead } }

// writesNothing is for a process of the crowd.
func writesNothing(j *worker.Job) { j.Rows, j.Files, j.Config.Pool = "", "", crowdPool }

// work is how long a holder has the lock where nothing ends it: three leases, or less than one where nothing renews it.
func (t *trial) work() time.Duration {
	if t.lock.Brief {
		return t.Lease / 2
	}

	return 3 * t.Lease
}

// start starts a process and returns when it is connected.
func (t *trial) start(ctx context.Context, options ...option) (*process, error) {
	job := worker.Job{Lock: t.lock.ID(), Name: t.name, Rows: t.Rows, Files: t.files}
	job.Config = locks.Config{Lease: t.Lease, Pool: pool}

	var links []*link

	closeAll := func(err error) (*process, error) {
		for _, l := range links {
			l.close()
		}

		return nil, err
	}

	for i, endpoint := range t.server.Endpoints() {
		l, err := openLink(ctx, endpoint)
		if err != nil {
			return closeAll(err)
		}

		links = append(links, l)
		job.Config.Servers = append(job.Config.Servers, t.server.DSN(i, l.listen))
	}

	for _, o := range options {
		o(&job)
	}

	p, err := spawn(t.Program, job, links)
	if err != nil {
		return closeAll(err)
	}

	t.all = append(t.all, p)

	if _, err := p.must(ctx, event.Ready, startLimit); err != nil {
		return nil, fmt.Errorf("a process: %w", err)
	}

	return p, nil
}

// refuse ends all connections, and lets nobody connect until redirect does.
func (t *trial) refuse() error {
	for _, p := range t.all {
		for _, l := range p.links {
			if err := l.refuse(); err != nil {
				return err
			}
		}
	}

	return nil
}

// redirect makes all processes find the server where it is now.
func (t *trial) redirect() error {
	for _, p := range t.all {
		for i, endpoint := range t.server.Endpoints() {
			if err := p.links[i].redirect(endpoint); err != nil {
				return err
			}
		}
	}

	return nil
}

// held starts a holder, and two who wait for what it has.
func (t *trial) held(ctx context.Context, others ...[]option) (holder *process, waiters []*process, err error) {
	if len(others) == 0 {
		others = [][]option{nil, nil}
	}

	if holder, err = t.start(ctx); err != nil {
		return nil, nil, err
	}

	for _, options := range others {
		w, err := t.start(ctx, options...)
		if err != nil {
			return nil, nil, err
		}

		waiters = append(waiters, w)
	}

	sleep(ctx, untilWithin(event.WallClock(), t.within))

	if err := holder.Say(worker.Acquire); err != nil {
		return nil, nil, err
	}

	if _, err := holder.must(ctx, event.Held, startLimit); err != nil {
		return nil, nil, err
	}

	return holder, waiters, t.wait(waiters...)
}

// untilWithin is how long it is until that moment of a second.
func untilWithin(now time.Time, within time.Duration) time.Duration {
	at := now.Truncate(time.Second).Add(within)
	if at.Before(now) {
		at = at.Add(time.Second)
	}

	return at.Sub(now)
}

func (t *trial) wait(waiters ...*process) error {
	for _, w := range waiters {
		if err := w.Say(worker.Acquire); err != nil {
			return err
		}
	}

	return nil
}

// anyone waits until one of them has the lock, for the limit at most.
func anyone(ctx context.Context, limit time.Duration, waiters ...*process) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	for _, w := range waiters {
		go func() {
			if _, ok := w.await(ctx, event.Held, limit); ok {
				cancel()
			}
		}()
	}

	<-ctx.Done()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func late(d time.Duration) string {
	return strings.Replace(lateAnswers, "%d", fmt.Sprint(d.Milliseconds()), 1)
}
