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
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer tty.Close()

	front, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return false
	}

	if front == group {
		return true
	}

	if front != unix.Getpgrp() || unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, group) != nil {
		return false
	}

	t.lentTo = group

	return true
}

// takeBack makes this process's group the foreground one again, unless the
// shell has put another there.
func (t *terminal) takeBack() {
	if t.lentTo == 0 {
		return
	}

	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer tty.Close()

	front, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil || front != t.lentTo {
		return
	}

	// A background process that does this is stopped by SIGTTOU, unless it
	// ignores it (tcsetpgrp(3)). Only now: an ignored signal is inherited by the
	// command.
	signal.Ignore(unix.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	t.lentTo = 0
}
