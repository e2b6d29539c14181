package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/event"
	"github.com/sqllock/sqllock/bench/torture/internal/locks"
)

// worker is a process at work.
type worker struct {
	job    Job
	locker locks.Locker
	sinks  *protected

	mutex sync.Mutex // of out
	out   *json.Encoder

	stop     atomic.Bool // stop before the next write
	release  chan struct{}
	free     func() // gives the connections of the pool back
	numbered int    // goroutines
}

// Run works off the job and the commands that come on in until it ends, and tells on out what happens.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)

	first, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}

	w := &worker{out: json.NewEncoder(out), release: make(chan struct{})}

	if err := json.Unmarshal(first, &w.job); err != nil {
		return err
	}

	if err := w.open(ctx); err != nil {
		w.tell(event.Event{Kind: event.Broke, Text: err.Error()})

		return err
	}

	w.tell(event.Event{Kind: event.Ready})

	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil // the trial is over; what is held goes with the process
		}

		if err != nil {
			return err
		}

		w.obey(ctx, strings.TrimSpace(line))
	}
}

// open connects, and uses the lock of another name once, so that the faults find connections that are there.
func (w *worker) open(ctx context.Context) error {
	if off := time.Now().Sub(event.WallClock()) - w.job.Clock; off.Abs() > time.Second {
		return fmt.Errorf("the clock of this process is %s ahead of what it should be: build the program with its overlay of time.Now", off)
	}

	lock, ok := locks.Find(w.job.Lock)
	if !ok {
		return fmt.Errorf("there is no lock %q", w.job.Lock)
	}

	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	var err error

	if w.locker, err = lock.Open(context.WithoutCancel(ctx), w.job.Config); err != nil {
		return fmt.Errorf("open: %w", err)
	}

	held, err := w.locker.Acquire(ctx, fmt.Sprintf("%s-warm-%d", w.job.Name, event.Clock()))
	if err != nil {
		return fmt.Errorf("acquire for the first time: %w", err)
	}

	if err := held.Release(ctx); err != nil {
		return fmt.Errorf("release for the first time: %w", err)
	}

	if w.job.Files != "" {
		w.sinks, err = openProtected(ctx, w.job)
	}

	return err
}

func (w *worker) obey(ctx context.Context, command string) {
	switch command {
	case Acquire:
		w.numbered++
		go w.hold(ctx, w.numbered)
	case Pass:
		w.numbered++
		go w.pass(ctx, w.numbered)
	case Release:
		close(w.release)
	case Stop:
		w.stop.Store(true)
	case Fill:
		w.fill(ctx)
	case Free:
		w.free()
	default:
		w.tell(event.Event{Kind: event.Broke, Text: fmt.Sprintf("there is no command %q", command)})
	}
}

func (w *worker) fill(ctx context.Context) {
	pooled, ok := w.locker.(locks.Pooled)
	if !ok {
		w.tell(event.Event{Kind: event.Broke, Text: noPool})

		return
	}

	var err error

	if w.free, err = pooled.Fill(ctx); err != nil {
		w.tell(event.Event{Kind: event.Broke, Text: "fill the pool: " + err.Error()})

		return
	}

	w.tell(event.Event{Kind: event.Filled})
}

// noPool is what a worker says whose lock has no pool to fill.
const noPool = "no pool"

// NoPool says whether an event is a worker's word that its lock shares no pool with the application.
func NoPool(e event.Event) bool { return e.Kind == event.Broke && e.Text == noPool }

func (w *worker) tell(e event.Event) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	if e.At == 0 {
		e.At = event.Clock()
	}

	_ = w.out.Encode(e) // without the conductor there is nobody to tell
}

// acquire asks until the lock is there, as an application would.
func (w *worker) acquire(ctx context.Context, who int) locks.Held {
	w.tell(event.Event{Kind: event.Asked, Who: who})

	for {
		held, err := w.locker.Acquire(ctx, w.job.Name)
		if err == nil {
			w.tell(event.Event{Kind: event.Held, Who: who, Token: held.Token()})

			return held
		}

		w.tell(event.Event{Kind: event.Erred, Who: who, Text: err.Error()})
		wait(ctx, again)
	}
}

// hold acquires the lock and keeps it until it is lost or to be released. Meanwhile it writes.
func (w *worker) hold(ctx context.Context, who int) {
	held := w.acquire(ctx, who)
	ticker := time.NewTicker(look)

	defer ticker.Stop()

	var written time.Time

	for {
		select {
		case <-w.release:
			w.giveBack(ctx, held, who)

			return
		case <-ticker.C:
		}

		if err := w.slowly(who, held.Check); err != nil {
			w.tell(event.Event{Kind: event.Lost, Who: who, Text: err.Error()})
			w.giveBack(ctx, held, who) // as a deferred call does

			return
		}

		if w.sinks == nil || time.Since(written) < write {
			continue
		}

		// With no guarded write under way, so that the next is one that begins when the process is woken.
		if w.stop.Load() && !w.sinks.guarding() {
			w.stop.Store(false)
			w.tell(event.Event{Kind: event.Stops, Who: who})
			stopThisProcess()
		}

		written = time.Now()

		_ = w.slowly(who, func() error {
			w.sinks.write(ctx, w, held, who)

			return nil
		})
	}
}

// slowly calls what a holder waits for: the lock's word, or a write that is under way. Who waits long does nothing new meanwhile.
func (w *worker) slowly(who int, f func() error) error {
	began, told := event.Clock(), make(chan struct{})
	doubt := time.AfterFunc(doubtful, func() {
		w.tell(event.Event{At: began, Kind: event.Doubts, Who: who})
		close(told)
	})

	err := f()
	if doubt.Stop() {
		return err
	}

	<-told

	if err == nil {
		w.tell(event.Event{Kind: event.Sure, Who: who})
	}

	return err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// pass acquires the lock, keeps it for a moment, and gives it back.
func (w *worker) pass(ctx context.Context, who int) {
	held := w.acquire(ctx, who)

	wait(ctx, pass)
	w.giveBack(ctx, held, who)
}

func (w *worker) giveBack(ctx context.Context, held locks.Held, who int) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	w.tell(event.Event{Kind: event.Releases, Who: who})

	said := event.Event{Kind: event.Released, Who: who}
	if err := held.Release(ctx); err != nil {
		said.Text = err.Error()
	}

	w.tell(said)
}
