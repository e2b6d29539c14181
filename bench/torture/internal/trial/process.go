package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/event"
	"github.com/sqllock/sqllock/bench/torture/internal/judge"
	"github.com/sqllock/sqllock/bench/torture/internal/worker"
	"github.com/sqllock/sqllock/test/servers/child"
)

// process is a worker, and what it has told.
type process struct {
	*child.Worker

	links []*link

	mutex sync.Mutex
	told  judge.Process
	news  chan struct{} // closed and made anew with each event
}

func spawn(program string, job worker.Job, links []*link) (*process, error) {
	cmd := exec.Command(program, "worker") //nolint:noctx // its end is stop
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "TORTURE_CLOCK="+strconv.Itoa(int(job.Clock.Seconds())))

	started, err := child.StartWorker(cmd, job)
	if err != nil {
		return nil, err
	}

	p := &process{Worker: started, links: links, news: make(chan struct{})}
	go p.Hear(p.hear)

	return p, nil
}

// hear notes what the process tells.
func (p *process) hear(line []byte) {
	var e event.Event
	if err := json.Unmarshal(line, &e); err != nil {
		e = event.Event{At: event.Clock(), Kind: event.Broke, Text: "said " + string(line)}
	}

	p.mutex.Lock()
	defer p.mutex.Unlock()

	p.told.Events = append(p.told.Events, e)
	close(p.news)
	p.news = make(chan struct{})
}

// await returns the first event of the kind, and false if there is none until the time is over, or the process breaks.
func (p *process) await(ctx context.Context, kind event.Kind, limit time.Duration) (event.Event, bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()

	for {
		found, ok, news := p.look(kind)
		if ok {
			return found, true
		}

		if _, broke, _ := p.look(event.Broke); broke {
			return found, false
		}

		select {
		case <-news:
		case <-timer.C:
			return event.Event{}, false
		case <-ctx.Done():
			return event.Event{}, false
		}
	}
}

func (p *process) look(kind event.Kind) (found event.Event, ok bool, news <-chan struct{}) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	for _, e := range p.told.Events {
		if e.Kind == kind {
			return e, true, nil
		}
	}

	return event.Event{}, false, p.news
}

// must is await for what has to happen in a trial that comes about.
func (p *process) must(ctx context.Context, kind event.Kind, limit time.Duration) (event.Event, error) {
	found, ok := p.await(ctx, kind, limit)
	if ok {
		return found, nil
	}

	if broke, ok, _ := p.look(event.Broke); ok {
		if worker.NoPool(broke) {
			return found, errNoPool
		}

		return found, errors.New(broke.Text)
	}

	if erred, ok, _ := p.look(event.Erred); ok {
		return found, fmt.Errorf("not %s within %s: %s", kind, limit, erred.Text)
	}

	return found, fmt.Errorf("not %s within %s", kind, limit)
}

// broke says what kept the process from its work: it could not write, or has ended.
func (p *process) broke() error {
	if broke, ok, _ := p.look(event.Broke); ok {
		return fmt.Errorf("a process: %s %s", broke.Sink, broke.Text)
	}

	select {
	case <-p.Done():
		if p.record().Killed == 0 {
			return fmt.Errorf("a process has ended: %w", p.Err())
		}
	default:
	}

	return nil
}

// kill ends the process at once.
func (p *process) kill() {
	p.mark(func(told *judge.Process) { told.Killed = event.Clock() })
	p.Stop(syscall.SIGKILL, time.Second)
}

// wake lets a process go on that has stopped itself.
func (p *process) wake(since time.Duration) error {
	p.mark(func(told *judge.Process) { told.Stops = append(told.Stops, judge.Span{From: since, To: event.Clock()}) })

	return p.Signal(syscall.SIGCONT)
}

func (p *process) mark(f func(*judge.Process)) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	f(&p.told)
}

// end ends the process and its links, if that has not been done.
func (p *process) end() {
	p.End()

	for _, l := range p.links {
		l.close()
	}
}

// record is what the process told.
func (p *process) record() judge.Process {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	return p.told
}
