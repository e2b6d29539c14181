//go:build unix

package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/clock"
)

// watchdog is the side of it that is in the process which holds the lock. The other side is a process, which is replaced if
// it ends or is stopped.
//
// Messages are lines: "group N", and "until NANOSECONDS" on the clock that both share. The end of the pipe is the death of
// this process.
type watchdog struct {
	args     []string
	replaced func(pid int)
	failed   chan error // gets why none is replaced any more
	keeper   sync.WaitGroup

	mu    sync.Mutex
	guard *guard
	over  bool  // none is replaced any more
	err   error // why it failed
	group int
	until time.Duration
}

const (
	// A guard that ends sooner than this was of no use, and of so many in a row the next would not be either.
	soon       = time.Second
	lastOfSoon = 5
)

// startWatchdog starts this program again, with the arguments that make it call ServeWatchdog. It tells of each guard that
// ended or was stopped, and was replaced.
func startWatchdog(left time.Duration, replaced func(pid int), args ...string) (*watchdog, error) {
	w := &watchdog{args: args, replaced: replaced, failed: make(chan error, 1), until: clock.Now() + left}

	var err error
	if w.guard, err = startGuard(args, w.known()); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}

	w.keeper.Go(w.keep)

	return w, nil
}

// keep replaces the guard when it ends, and its successors.
func (w *watchdog) keep() {
	for early := 0; ; {
		w.guard.await()

		early++
		if time.Since(w.guard.begun) > soon {
			early = 0
		}

		ended := w.guard.process.Pid
		if !w.replace(early == lastOfSoon) {
			return
		}

		// Who is told may take long, and the end of a run waits for this.
		go w.replaced(ended)
	}
}

// replace starts a guard after one that has ended, unless none is wanted any more or it is of no use.
func (w *watchdog) replace(useless bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.guard.close()

	if w.over {
		return false
	}

	var next *guard

	err := errors.New("it ends again and again")
	if !useless {
		next, err = startGuard(w.args, w.known())
	}

	if err != nil {
		w.err, w.over = err, true
		w.failed <- err

		return false
	}

	w.guard = next

	return true
}

// known are the messages that say what a guard has to know. Group zero is none.
func (w *watchdog) known() string { return fmt.Sprintf("group %d\nuntil %d\n", w.group, w.until) }

// watch names the group.
func (w *watchdog) watch(group int) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.group = group
	w.guard.tell("group %d\n", group)

	return w.err
}

// extend says for how long from now the group may live without another word.
func (w *watchdog) extend(left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.until = clock.Now() + left
	w.guard.tell("until %d\n", w.until)
}

// stopped is told of a stopped process by whoever waits for all children.
func (w *watchdog) stopped(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.guard.process.Pid == pid {
		w.guard.kill()
	}
}

// dismiss ends the watchdog; the group is gone.
func (w *watchdog) dismiss() {
	w.mu.Lock()
	w.over = true
	w.guard.kill()
	w.mu.Unlock()

	w.keeper.Wait()
}

// guard is a process that watches.
type guard struct {
	process *os.Process
	pipe    *os.File
	begun   time.Time
}

// startGuard starts a process that finds what is known in its pipe: this one may be gone before it could tell.
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

// tell writes a message. Who has read none of the many before, so that the pipe is full, is of no use, and is replaced. It is
// written at once or not at all: with a limit of time this process, if it gets no processor for so long, would end a guard
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

// ServeWatchdog is the process that watches. It returns when the process that
// it watches over is gone.
func ServeWatchdog(in io.Reader) {
	// It has to outlive those who are told to end.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)

	// A name of its own, where Linux has one (proc_pid_comm(5)), so that "pkill sqllock" and "killall sqllock" do not end it
	// together with the process that it watches over.
	_ = os.WriteFile("/proc/self/comm", []byte("watch-group"), 0)

	lines := make(chan string)

	go func() {
		defer close(lines)

		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()

	watch(lines)
}

func watch(lines <-chan string) {
	var (
		group int
		timer <-chan time.Time
	)

	for {
		select {
		case line, ok := <-lines:
			var number int64

			switch {
			case !ok:
				killGroup(group)

				return
			case scan(line, "group %d", &number):
				group = int(number)
			case scan(line, "until %d", &number):
				timer = time.After(time.Duration(number) - clock.Now())
			}
		case <-timer:
			// The other process is stopped or hangs. It has to be there still to
			// find out, so the group's number is not given out again.
			killGroup(group)

			timer = nil
		}
	}
}

func scan(line, format string, number *int64) bool {
	n, err := fmt.Sscanf(line, format, number)

	return n == 1 && err == nil
}

func killGroup(group int) {
	// Zero and one would be this group and everything.
	if group > 1 {
		_ = unix.Kill(-group, unix.SIGKILL)
	}
}
