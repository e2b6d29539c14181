//go:build unix

package process

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Notify catches the signals that are the command's business.
func Notify() (caught <-chan os.Signal, stop func()) {
	return Catch(
		unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
		unix.SIGCONT,
		// That of an alarm which was set before this program began, as "perl -e 'alarm 60; exec …'" does.
		unix.SIGALRM,
		// Stopped, this process could not renew; with its stderr gone, it would
		// die at the first message.
		unix.SIGTSTP, unix.SIGPIPE,
	)
}

// Ending says whether the signal ends a program that does nothing about it.
func Ending(sig os.Signal) bool {
	return sig == unix.SIGINT || sig == unix.SIGTERM || sig == unix.SIGHUP || sig == unix.SIGQUIT || sig == unix.SIGALRM
}

// Forward passes a signal on to the group, but for those that are about this process: that it writes where nobody
// reads, and that it is to stop, which would keep it from renewing.
func (g *Group) Forward(sig os.Signal) {
	if sig != unix.SIGTSTP && sig != unix.SIGPIPE {
		g.Signal(sig)
	}
}

// SignalNamed is the signal of a name: term, SIGTERM.
func SignalNamed(name string) (Signal, error) {
	sig := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	if sig == 0 {
		return 0, errors.New("there is no such signal")
	}

	return sig, nil
}
