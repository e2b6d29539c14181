//go:build unix

package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/clock"
)

// Watchdog is the side of it that is in the process which holds the lock. The
// other side are two guards, processes each of which would do: so the group is
// watched too while one that ended or was stopped is replaced, and when this
// process is stopped and cannot replace it.
//
// Messages are lines: "group N", and "until NANOSECONDS" on the clock that all
// share. The end of the pipe is the death of this process.
type Watchdog struct {
	args    []string
	told    Told
	failed  chan struct{}
	over    chan struct{} // closed when none is replaced any more
	keepers sync.WaitGroup

	mu     sync.Mutex
	guards []*guard // those that run
	err    error    // why the watchdog failed
	group  int
	until  time.Duration
}

const (
	guards = 2
	// A guard that ends sooner than this was of no use, and of so many in a row
	// the next would not be either.
	soon       = time.Second
	lastOfSoon = 5
	// startPause is between two tries to start a guard while the other is there.
	startPause = time.Second
)

// StartWatchdog starts this program again, with the arguments that make it
// call ServeWatchdog. It tells of each guard that ended or was stopped.
func StartWatchdog(told Told, args ...string) (*Watchdog, error) {
	w := &Watchdog{args: args, told: told, failed: make(chan struct{}), over: make(chan struct{})}

	for range guards {
		g, err := w.start()
		if err != nil {
			w.Dismiss()

			return nil, err
		}

		w.keepers.Go(func() { w.keep(g) })
	}

	return w, nil
}

// keep replaces a guard when it ends, and its successors.
func (w *Watchdog) keep(g *guard) {
	for early := 0; g != nil; {
		g.await()

		ended := g.process.Pid
		w.remove(g)

		early++
		if time.Since(g.begun) > soon {
			early = 0
		}

		if early == lastOfSoon {
			w.fail(errors.New("it ends again and again"))
		}

		if g = w.successor(ended); g != nil {
			// Who is told may take long, and the end of a run waits for this.
			go w.told.Replaced(ended)
		}
	}
}

// successor starts a guard after the one that was that process; nil if none is
// wanted any more.
func (w *Watchdog) successor(ended int) *guard {
	for first := true; ; first = false {
		g, err := w.start()

		switch {
		case err == nil:
			return g
		case w.alone():
			w.fail(err)
		case first && !errors.Is(err, errOver):
			go w.told.Missing(ended, err)
		}

		select {
		case <-w.over:
			return nil
		case <-time.After(startPause):
		}
	}
}

// errOver is for a guard that came too late to be of use.
var errOver = errors.New("the watchdog is over")

// start starts a guard and tells it all.
func (w *Watchdog) start() (*guard, error) {
	w.mu.Lock()
	known := w.known()
	w.mu.Unlock()

	g, err := startGuard(w.args, known)
	if err != nil {
		return nil, err
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	if w.isOver() {
		g.kill()
		g.await()
		g.close()

		return nil, errOver
	}

	if now := w.known(); now != known {
		g.tell("%s", now)
	}

	w.guards = append(w.guards, g)

	return g, nil
}

// known are the messages that say what a guard has to know.
func (w *Watchdog) known() (messages string) {
	if w.group != 0 {
		messages = fmt.Sprintf("group %d\n", w.group)
	}

	if w.until != 0 {
		messages += fmt.Sprintf("until %d\n", w.until)
	}

	return messages
}

// remove takes a guard that ended off the list.
func (w *Watchdog) remove(g *guard) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.guards = slices.DeleteFunc(w.guards, func(one *guard) bool { return one == g })
	g.close()
}

func (w *Watchdog) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// alone says whether this process has no guard.
func (w *Watchdog) alone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	return len(w.guards) == 0
}

// fail gives up.
func (w *Watchdog) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !w.isOver() {
		w.err = err
		close(w.over)
		close(w.failed)
	}
}

// Failed is closed when nobody watches, and nobody can be made to.
func (w *Watchdog) Failed() <-chan struct{} { return w.failed }

// Err is why the watchdog failed, if it did.
func (w *Watchdog) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.err
}

// watch names the group.
func (w *Watchdog) watch(group int) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.group = group
	w.tell("group %d\n", group)

	return w.err
}

// Until says for how long from now the group may live without another word.
func (w *Watchdog) Until(left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.until = clock.Now() + left
	w.tell("until %d\n", w.until)
}

func (w *Watchdog) tell(format string, number any) {
	for _, g := range w.guards {
		g.tell(format, number)
	}
}

// stopped is told of a stopped process by whoever waits for all children.
func (w *Watchdog) stopped(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for _, g := range w.guards {
		if g.process.Pid == pid {
			g.kill()
		}
	}
}

// Dismiss ends the watchdog; the group is gone.
func (w *Watchdog) Dismiss() {
	w.mu.Lock()

	if !w.isOver() {
		close(w.over)
	}

	for _, g := range w.guards {
		g.kill()
	}

	w.mu.Unlock()
	w.keepers.Wait()
}

// guard is one process that watches.
type guard struct {
	process *os.Process
	pipe    *os.File
	begun   time.Time
}

// startGuard starts a process that finds what is known in its pipe: this one may be
// gone before it could tell.
func startGuard(args []string, known string) (*guard, error) {
	cmd, err := again(args...)
	if err != nil {
		return nil, err
	}

	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()

	if _, err := write.WriteString(known); err != nil {
		return nil, errors.Join(err, write.Close())
	}

	// It has nothing to say. There may be no /dev/null, and whoever reads the command's output shall not wait for it.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, read, read
	cmd.Dir = "/" // nothing may be kept from being unmounted
	// Out of the way of Ctrl-C, which is for the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, write.Close())
	}

	return &guard{process: cmd.Process, pipe: write, begun: time.Now()}, nil
}

// tell writes a message. Who has read none of the many before, so that the pipe is
// full, is of no use, and is replaced. It is written at once or not at all: with a
// limit of time this process, if it gets no processor for so long, would end a guard
// that reads.
func (g *guard) tell(format string, number any) {
	message := fmt.Appendf(nil, format, number)

	raw, err := g.pipe.SyscallConn()
	if err != nil {
		return // it has ended, and is replaced
	}

	written := 0

	_ = raw.Write(func(fd uintptr) bool {
		for {
			if written, err = unix.Write(int(fd), message); !errors.Is(err, unix.EINTR) {
				return true
			}
		}
	})

	if written != len(message) {
		g.kill()
	}
}

// await returns when the process has ended. One that is stopped is ended.
func (g *guard) await() {
	for {
		var status unix.WaitStatus

		_, err := unix.Wait4(g.process.Pid, &status, unix.WUNTRACED, nil)

		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && status.Stopped():
			g.kill()
		default:
			// Its status may have been taken by whoever waits for all children.
			return
		}
	}
}

func (g *guard) kill() { _ = g.process.Kill() }

// close frees what this process has of one that ended.
func (g *guard) close() {
	_ = g.pipe.Close()
	_ = g.process.Release()
}
