// Package process runs the command under a lock so that nothing of it is left
// when the lock is.
//
// The command gets a process group of its own, and what is done, is done to the
// whole group. Beside it runs a watchdog, another process of this program, which
// kills the group if this one dies, is stopped, or hangs. It is told of the group
// before the command begins. If it dies or is stopped it is replaced at once; if
// that cannot be done, the group is killed. On Linux the kernel also kills the
// command itself when this process dies.
//
// So the group ends with the lock as long as one of the two processes runs.
//
// What leaves the group (setsid, a daemon) is out of reach.
package process

import (
	"os"
	"os/signal"
	"syscall"
)

// Signal is one.
type Signal = syscall.Signal

// Terminate is the signal that asks a program to end.
const Terminate = syscall.SIGTERM

// Status is how a command ended.
type Status struct {
	// Code is its exit code, if it was not killed.
	Code int
	// Signal is the number of the signal that killed it, else zero.
	Signal int
}

// ExitCode is the status as a shell tells it: 128 and the signal's number for
// a command that was killed.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + s.Signal
	}

	return s.Code
}

// Command is what to run. It has this process's standard streams.
type Command struct {
	// Path of the executable, and what follows it.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
}

// Self is how this program is started once more.
type Self struct {
	// Held and Watchdog are the arguments that make it call ServeHeld, with those that follow, and ServeWatchdog.
	Held, Watchdog string
	// Replaced is called with the process of each watchdog that ended or was stopped and has a successor.
	Replaced func(pid int)
}

// NotExecutableError says that the system refused to execute the command.
type NotExecutableError struct {
	Path string
	Err  error
}

func (e *NotExecutableError) Error() string { return "exec " + e.Path + ": " + e.Err.Error() }

func (e *NotExecutableError) Unwrap() error { return e.Err }

// Catch catches signals. Those that this process was told to ignore, as under nohup or in a script's background, stay
// ignored, for the command too.
func Catch(signals ...os.Signal) (caught <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)

	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}

	return c, func() { signal.Stop(c) }
}

// Number is a signal's number, zero if it has none.
func Number(sig os.Signal) int {
	number, _ := sig.(syscall.Signal)

	return int(number)
}
