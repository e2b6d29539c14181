//go:build unix

package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/clock"
)

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
