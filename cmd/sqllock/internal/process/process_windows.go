package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Group is a command under way. Windows has no process groups that could be
// killed, so what the command starts is out of reach.
type Group struct {
	cmd    *exec.Cmd
	done   chan struct{}
	status Status
}

// Start starts the command.
func Start(c Command, _ time.Duration, _ Self) (*Group, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = c.Env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr

	if err := cmd.Start(); err != nil {
		return nil, &NotExecutableError{Path: c.Path, Err: err}
	}

	g := &Group{cmd: cmd, done: make(chan struct{})}

	go func() {
		defer close(g.done)

		err := cmd.Wait()
		g.status.Code = cmd.ProcessState.ExitCode()

		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			g.status.Code = 255
		}
	}()

	return g, nil
}

// Done is closed when the command has ended.
func (g *Group) Done() <-chan struct{} { return g.done }

// Status says how the command ended, once Done is closed.
func (g *Group) Status() Status { return g.status }

// Ask kills the command: Windows has no signal that asks.
func (g *Group) Ask(Signal) { g.Kill() }

// Kill kills the command.
func (g *Group) Kill() { _ = g.cmd.Process.Kill() }

// Gone is true: what the command started is not known.
func (*Group) Gone(time.Duration) bool { return true }

// Forward does nothing: the console sends Ctrl-C to the command too.
func (*Group) Forward(os.Signal) {}

// Notify catches Ctrl-C, so that the lock is released after the command ended
// of it.
func Notify() (caught <-chan os.Signal, stop func()) {
	return Catch(os.Interrupt)
}

// Ending says whether the signal ends a program that does nothing about it.
func Ending(sig os.Signal) bool { return sig == os.Interrupt }

// Until does nothing here: there is no watchdog.
func (*Group) Until(time.Duration) {}

// Unwatched is never.
func (*Group) Unwatched() <-chan error { return nil }

// ServeWatchdog does nothing here.
func ServeWatchdog(io.Reader) {}

// SignalNamed knows the one that makes sense here.
func SignalNamed(name string) (Signal, error) {
	if name != "term" {
		return 0, errors.New("Windows has only term")
	}

	return syscall.SIGTERM, nil
}

// Become is not to be had here.
func Become(Command) error { return errors.ErrUnsupported }

// ServeHeld does nothing here.
func ServeHeld([]string) error { return nil }

// OwnGroup is none.
func OwnGroup() int { return 0 }
