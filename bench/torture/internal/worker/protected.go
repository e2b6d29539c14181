package worker

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/sqllock/sqllock/bench/torture/internal/event"
	"github.com/sqllock/sqllock/bench/torture/internal/locks"
	"github.com/sqllock/sqllock/bench/torture/internal/sinks"
)

// protected are the things that a holder writes to.
type protected struct {
	plain, checked map[event.Sink]sinks.Sink
	underWay       atomic.Bool // a guarded write
}

func openProtected(ctx context.Context, job Job) (*protected, error) {
	p := &protected{plain: make(map[event.Sink]sinks.Sink), checked: make(map[event.Sink]sinks.Sink)}

	for _, one := range []struct {
		sink    event.Sink
		into    map[event.Sink]sinks.Sink
		checked bool
	}{{event.Row, p.plain, false}, {event.CheckedRow, p.checked, true}} {
		row, err := sinks.OpenRow(ctx, job.Rows, job.Name, one.checked)
		if err != nil {
			return nil, err
		}

		one.into[one.sink] = row
	}

	for _, one := range []struct {
		sink    event.Sink
		into    map[event.Sink]sinks.Sink
		checked bool
	}{{event.File, p.plain, false}, {event.CheckedFile, p.checked, true}} {
		file, err := sinks.OpenFile(filepath.Join(job.Files, string(one.sink)), one.checked)
		if err != nil {
			return nil, err
		}

		one.into[one.sink] = file
	}

	return p, nil
}

// guarding says whether a guarded write is under way. It goes through the network that the faults are in, and the others go on
// without it.
func (p *protected) guarding() bool { return p.underWay.Load() }

// write writes once to each of them.
func (p *protected) write(ctx context.Context, w *worker, held locks.Held, who int) {
	for sink, to := range p.plain {
		n, err := to.Write(ctx, 0)
		w.wrote(who, sink, n, err)
	}

	token := held.Token()

	for sink, to := range p.checked {
		if token == 0 {
			break
		}

		n, err := to.Write(ctx, token)
		w.wrote(who, sink, n, err)
	}

	guarded, ok := held.(locks.Guarded)
	if !ok || !p.underWay.CompareAndSwap(false, true) {
		return
	}

	go func() {
		defer p.underWay.Store(false)

		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()

		n, err := guarded.Write(ctx)
		w.wrote(who, event.GuardedRow, n, err)
	}()
}

// wrote tells what came of a write. A guard that fails for whatever reason has kept the write out.
func (w *worker) wrote(who int, sink event.Sink, n int64, err error) {
	switch {
	case err == nil:
		w.tell(event.Event{Kind: event.Wrote, Who: who, Sink: sink, N: n})
	case sink == event.GuardedRow || errors.Is(err, sinks.ErrRefused):
		w.tell(event.Event{Kind: event.Refused, Who: who, Sink: sink, Text: err.Error()})
	default:
		w.tell(event.Event{Kind: event.Broke, Who: who, Sink: sink, Text: err.Error()})
	}
}

// stopThisProcess returns when somebody has woken it. The call that stops it may return a moment before all its threads stand still.
func stopThisProcess() {
	woken := make(chan os.Signal, 1)

	signal.Notify(woken, syscall.SIGCONT)
	defer signal.Stop(woken)

	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)

	<-woken
}
