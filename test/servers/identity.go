package servers

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// identity names a process for good: its number alone may be given to another process after it ended.
// It is written beside everything that could outlive a run that was killed.
type identity struct {
	host    string
	pid     int
	started string // the process' start time, in a unit of the operating system's
}

func identify(pid int) (identity, error) {
	host, err := os.Hostname()
	if err != nil {
		return identity{}, fmt.Errorf("name of this machine: %w", err)
	}

	started, err := startTime(pid)
	if err != nil {
		return identity{}, fmt.Errorf("start time of process %d: %w", pid, err)
	}

	return identity{host: host, pid: pid, started: started}, nil
}

func (i identity) String() string {
	return fmt.Sprintf("%s %d %s", i.host, i.pid, i.started)
}

func parseIdentity(text string) (identity, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return identity{}, fmt.Errorf("%q is not the identity of a process", text)
	}

	pid, err := strconv.Atoi(fields[1])
	if err != nil {
		return identity{}, fmt.Errorf("%q is not the identity of a process: %w", text, err)
	}

	return identity{host: fields[0], pid: pid, started: fields[2]}, nil
}

// gone is true if the process is known to have ended. Of another machine's processes nothing is known.
func (i identity) gone() bool {
	host, err := os.Hostname()
	if err != nil || host != i.host {
		return false
	}

	started, err := startTime(i.pid)
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}

	return started != i.started
}

// running is true if the process is known to be there still.
func (i identity) running() bool {
	now, err := identify(i.pid)

	return err == nil && now == i
}
