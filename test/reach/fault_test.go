package reach_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// commandTime is how long a command may take.
const commandTime = 2 * time.Minute

// command returns what a cluster has for a fault, or for its end: SQLLOCK_REACH_KILL_GALERA for KILL. nil if there is none.
func (s site) command(t *testing.T, verb string) func(node) {
	t.Helper()

	line := os.Getenv(s.variable(verb))
	if line == "" {
		return nil
	}

	return func(n node) {
		t.Helper()

		ctx, cancel := context.WithTimeout(t.Context(), commandTime)
		defer cancel()

		c := exec.CommandContext(ctx, "sh", "-c", line+` "$1"`, "sh", strconv.Itoa(n.number))
		c.WaitDelay = time.Second // for what it started, and did not wait for

		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s %d: %v\n%s", line, n.number, err, out)
		}
	}
}

func (s site) variable(verb string) string { return "SQLLOCK_REACH_" + verb + "_" + s.name }

func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()

	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// listener returns the process that listens at an address of this machine.
func listener(t *testing.T, address string) int {
	t.Helper()

	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}

	socket := ""

	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := os.ReadFile(file)

		for line := range strings.Lines(string(table)) {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode; 0A listens.
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == "0A" && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", number)) {
				socket = "socket:[" + fields[9] + "]"
			}
		}
	}

	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == socket {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				t.Fatal(err)
			}

			return pid
		}
	}

	t.Fatalf("no process of this machine listens at %s", address)

	return 0
}
