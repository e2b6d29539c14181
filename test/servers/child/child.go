// Package child starts processes that do not outlive the program that started them.
//
// Each child leads a process group of its own, so that a Ctrl-C at the terminal reaches the program
// first and the program decides what its children are told. On Linux the kernel also signals a child
// when the program dies without having had a say (SIGKILL); elsewhere such a child is left over.
package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Options say how a child is started. The zero value is a child of the same user that gets SIGTERM when
// the program dies.
type Options struct {
	// DeathSignal is what the kernel sends the child when the program dies; 0 is SIGTERM. Linux only.
	DeathSignal syscall.Signal
	// User is the account that the child runs as; nil is the program's own. Unix only.
	User *Account
}

// Account is a user of the machine, by number.
type Account struct {
	UID, GID uint32
}

// Process is a running child, or one that has ended.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Start starts cmd. It takes over cmd.SysProcAttr and calls cmd.Wait; use [Process.Done] instead.
func Start(cmd *exec.Cmd, options Options) (*Process, error) {
	if options.DeathSignal == 0 {
		options.DeathSignal = syscall.SIGTERM
	}

	cmd.SysProcAttr = attributes(options)
	process := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)

	go func() {
		// The kernel ties the death signal to the thread that started the child, not to the process:
		// prctl(2), PR_SET_PDEATHSIG. The lock keeps this thread alive for as long as the child is.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		err := cmd.Start()
		started <- err

		if err == nil {
			process.err = cmd.Wait()
			close(process.done)
		}
	}()

	if err := <-started; err != nil {
		return nil, err
	}

	return process, nil
}

// PID is the child's process id, which is also the id of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is nil while the child runs and after it exited with code 0; else it says how the child ended.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// ExitCode waits for the child and returns its exit code, as a shell would: 128 and the signal's number
// for a child that a signal ended.
func (p *Process) ExitCode() int {
	<-p.done

	state := p.cmd.ProcessState
	if state == nil {
		return 1
	}

	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}

	return state.ExitCode()
}

// Signal sends sig to the child alone.
func (p *Process) Signal(sig os.Signal) error {
	select {
	case <-p.done: // its number may belong to another process by now
		return nil
	default:
	}

	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}

	return nil
}

// SignalGroup sends sig to the child and to those of its descendants that stayed in its group.
func (p *Process) SignalGroup(sig syscall.Signal) error { return signalGroup(p, sig) }

// Stop sends sig to the child, waits for at most grace, kills what is left of the group, and returns
// when the child has ended.
func (p *Process) Stop(sig os.Signal, grace time.Duration) {
	_ = p.Signal(sig)

	timer := time.NewTimer(grace)
	defer timer.Stop()

	select {
	case <-p.done:
	case <-timer.C:
	}

	_ = p.SignalGroup(syscall.SIGKILL)
	<-p.done
}
