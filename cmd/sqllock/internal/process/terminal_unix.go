//go:build unix

package process

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the controlling one while it is lent to the command. It is lent
// when the command asks for it, by being stopped for the lack of it, so that
// Ctrl-C keeps reaching the whole pipeline around a command that does not.
type terminal struct{ lentTo int }

// lend makes the group the foreground one, if this process's group is.
func (t *terminal) lend(group int) bool {
	lent := false

	withTerminal(func(tty, front int) {
		if front == unix.Getpgrp() && unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, group) == nil {
			t.lentTo, front = group, group
		}

		lent = front == group
	})

	return lent
}

// withTerminal calls do with the controlling terminal and its foreground group, if there is one.
func withTerminal(do func(tty, front int)) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer tty.Close()

	if front, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP); err == nil {
		do(int(tty.Fd()), front)
	}
}

// takeBack makes this process's group the foreground one again, unless the
// shell has put another there.
func (t *terminal) takeBack() {
	if t.lentTo == 0 {
		return
	}

	withTerminal(func(tty, front int) {
		if front != t.lentTo {
			return
		}

		// A background process that does this is stopped by SIGTTOU, unless it
		// ignores it (tcsetpgrp(3)). Only now: an ignored signal is inherited by the
		// command.
		signal.Ignore(unix.SIGTTOU)
		_ = unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, unix.Getpgrp())
		t.lentTo = 0
	})
}
