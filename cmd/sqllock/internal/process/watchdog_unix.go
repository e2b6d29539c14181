//go:build unix

package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/clock"
)

// Watchdog is the side of it that is in the process which holds the lock.
// Messages are lines: "group N", "until NANOSECONDS" on the clock that both
// share, and "done". The end of the pipe without "done" is the death of this
// process.
type Watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// StartWatchdog starts this program again, with the arguments that make it
// call ServeWatchdog.
func StartWatchdog(args ...string) (*Watchdog, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()

	cmd := exec.Command(self, args...) //nolint:noctx // it ends with the pipe
	cmd.Stdin = read
	cmd.Dir = "/" // nothing may be kept from being unmounted
	// Out of the way of Ctrl-C, which is for the command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	if err := cmd.Start(); err != nil {
		_ = write.Close()

		return nil, err
	}

	return &Watchdog{cmd: cmd, pipe: write}, nil
}

// watch names the group.
func (w *Watchdog) watch(group int) error {
	_, err := fmt.Fprintf(w.pipe, "group %d\n", group)

	return err
}

// Until says for how long from now the group may live without another word.
func (w *Watchdog) Until(left time.Duration) {
	_, _ = fmt.Fprintf(w.pipe, "until %d\n", int64(clock.Now()+left))
}

// Dismiss ends the watchdog; the group is gone.
func (w *Watchdog) Dismiss() {
	_, _ = fmt.Fprintln(w.pipe, "done")
	_ = w.pipe.Close()
	_ = w.cmd.Wait()
}

// ServeWatchdog is the watchdog's process. It returns when there is nothing
// left to watch.
func ServeWatchdog(in io.Reader) {
	// It has to outlive those who are told to end.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)

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
			case line == "done":
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
