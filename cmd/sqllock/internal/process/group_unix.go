//go:build unix

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is a command under way, with all that it starts and that stays in its
// process group.
type Group struct {
	pid      int
	done     chan struct{}
	watchdog *watchdog

	mu       sync.Mutex
	ended    bool // the leader was reaped, so its id may be somebody else's
	stopped  bool // by reading from or writing to a terminal that it does not own
	status   Status
	terminal terminal
}

// Start starts the command in a process group of its own, which may live for so long without another word (Until). A
// watchdog knows it before the command begins.
func Start(c Command, left time.Duration, self Self) (*Group, error) {
	w, err := startWatchdog(left, self.Replaced, self.Watchdog)
	if err != nil {
		return nil, err
	}

	g := &Group{done: make(chan struct{}), watchdog: w}
	started := make(chan error, 1)

	go func() {
		// The kernel takes the end of the thread that started it for the death of the parent (PR_SET_PDEATHSIG in prctl(2)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		err := g.begin(c, self.Held)
		started <- err

		if err == nil {
			g.wait()
			close(g.done)
		}
	}()

	if err := <-started; err != nil {
		w.dismiss()

		return nil, err
	}

	return g, nil
}

func (g *Group) begin(c Command, self string) error {
	cmd, err := again(slices.Concat([]string{self, c.Path}, c.Args)...)
	if err != nil {
		return err
	}

	cmd.Env = c.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()

	h, err := startHeld(cmd)
	if err != nil {
		return err
	}
	defer h.close()

	g.pid = cmd.Process.Pid

	if err = g.watchdog.watch(g.pid); err != nil {
		err = fmt.Errorf("tell the watchdog of the command: %w", err)
	} else if err = h.letGo(); err != nil {
		err = &NotExecutableError{Path: c.Path, Err: err}
	}

	if err != nil {
		h.close() // without the word it ends, and is reaped
		g.wait()
	}

	return err
}

// wait waits for the command itself to end, and looks after its stops.
func (g *Group) wait() {
	// As process 1, in a container, this is the parent of every orphan, and
	// their status is for it to take. So it may take the watchdog's.
	of := g.pid
	if os.Getpid() == 1 {
		of = -1
	}

	for {
		var status unix.WaitStatus

		pid, err := unix.Wait4(of, &status, unix.WUNTRACED, nil)

		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && pid != g.pid:
			if status.Stopped() {
				g.watchdog.stopped(pid)
			}
		case err != nil:
			g.end(Status{Code: 255})

			return
		case status.Stopped():
			g.handleStop(status.StopSignal())
		default:
			// Each is -1 if it ended the other way.
			g.end(Status{Code: status.ExitStatus(), Signal: max(0, int(status.Signal()))})

			return
		}
	}
}

// Until says for how long from now the group may live without another word.
func (g *Group) Until(left time.Duration) { g.watchdog.extend(left) }

// Unwatched says, once, why nobody watches, and nobody can be made to.
func (g *Group) Unwatched() <-chan error { return g.watchdog.failed }

// end kills what is left of the group. While a member lives, its number is
// not given out again; if none does, the number was free for an instant only.
func (g *Group) end(s Status) {
	g.mu.Lock()
	defer g.mu.Unlock()

	_ = unix.Kill(-g.pid, unix.SIGKILL)
	g.ended, g.status = true, s
	g.terminal.takeBack()
}

// handleStop does what a shell with job control does for its foreground job.
func (g *Group) handleStop(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()

	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		if !g.lendTerminal() && !g.stopped {
			g.stopped = true

			go g.awaitTerminal()
		}
	case unix.SIGTSTP:
		// Suspended from the keyboard: no shell can see that and resume it, and
		// it would keep the lock.
		_ = unix.Kill(-g.pid, unix.SIGCONT)
	default:
		// Somebody sent SIGSTOP, and will know why.
	}
}

// lendTerminal gives the terminal to the group and lets it go on, if it is
// this process's to give.
func (g *Group) lendTerminal() bool {
	if !g.terminal.lend(g.pid) {
		return false
	}

	g.stopped = false
	_ = unix.Kill(-g.pid, unix.SIGCONT)

	return true
}

// awaitTerminal tries again until this process is in the foreground: the
// shell's "fg" tells nothing to a job that was not stopped, as this one.
func (g *Group) awaitTerminal() {
	for g.stillStopped() {
		select {
		case <-g.done:
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (g *Group) stillStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.stopped && !g.ended {
		g.lendTerminal()
	}

	return g.stopped && !g.ended
}

// Done is closed when the command has ended and the rest of its group was
// killed.
func (g *Group) Done() <-chan struct{} { return g.done }

// Status says how the command ended, once Done is closed.
func (g *Group) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.status
}

// Signal sends a signal to the group.
func (g *Group) Signal(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	if g.ended {
		return
	}

	_ = unix.Kill(-g.pid, s)

	if g.stopped && Ending(s) {
		// It would not hear of it before it goes on.
		_ = unix.Kill(-g.pid, unix.SIGCONT)
	}
}

// Ask asks the group to end, also one that is stopped.
func (g *Group) Ask(sig Signal) {
	g.Signal(sig)
	g.Signal(unix.SIGCONT)
}

// Kill kills the group.
func (g *Group) Kill() { g.Signal(unix.SIGKILL) }

// Gone waits until no member of the group lives any more, at most for so long,
// and says whether that is so. The command has to have ended.
func (g *Group) Gone(limit time.Duration) bool {
	defer g.watchdog.dismiss()

	for deadline, again := time.Now().Add(limit), 2*time.Millisecond; ; again = min(2*again, 50*time.Millisecond) {
		// Orphans become children of process 1, which this may be, in a container.
		for {
			pid, err := unix.Wait4(-g.pid, nil, unix.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
		}

		if errors.Is(unix.Kill(-g.pid, unix.SIGKILL), unix.ESRCH) || onlyDead(g.pid) {
			return true
		}

		if time.Now().After(deadline) {
			return false
		}

		time.Sleep(again) //nolint:forbidigo // the kernel has no event for the end of other processes' children
	}
}

// onlyDead says whether all members of a group are zombies, which their parent has not reaped yet, or never will. Only Linux tells
// (proc_pid_stat(5)). A member whose first thread has ended is no zombie while it has others.
func onlyDead(group int) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	dead := false

	for _, file := range files {
		stat, _ := os.ReadFile(file)                                              //nolint:gosec // of the kernel; it may be gone
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the state, the parent, the group, ...

		if len(fields) > 17 && fields[2] == strconv.Itoa(group) {
			if fields[0] != "Z" || fields[17] != "1" {
				return false
			}

			dead = true
		}
	}

	return dead
}

// OwnGroup is the process group of this process.
func OwnGroup() int { return unix.Getpgrp() }
