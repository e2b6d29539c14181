//go:build unix

package child_test

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/test/servers/child"
)

func TestExitCode(t *testing.T) {
	t.Parallel()

	for script, want := range map[string]int{
		"exit 0":        0,
		"exit 7":        7,
		"kill -TERM $$": 128 + int(syscall.SIGTERM),
	} {
		process, err := child.Start(exec.CommandContext(t.Context(), "sh", "-c", script), child.Options{})
		if err != nil {
			t.Fatalf("Start(%q) = %v, want nil", script, err)
		}

		if got := process.ExitCode(); got != want {
			t.Errorf("ExitCode of %q = %d, want %d", script, got, want)
		}
	}
}

func TestWorker(t *testing.T) {
	t.Parallel()

	w, err := child.StartWorker(exec.CommandContext(t.Context(), "sh", "-c", "cat; sleep 60"), map[string]int{"job": 1})
	if err != nil {
		t.Fatalf("StartWorker() = %v, want nil", err)
	}

	if err := w.Say("more"); err != nil {
		t.Errorf("Say() = %v, want nil", err)
	}

	said, ended := make(chan string, 2), make(chan struct{})

	go func() {
		defer close(ended)

		w.Hear(func(line []byte) { said <- string(line) })
	}()

	for _, want := range []string{`{"job":1}`, "more"} {
		if got := <-said; got != want {
			t.Errorf("the worker said %q, want %q", got, want)
		}
	}

	w.End()
	<-ended

	if got, want := w.ExitCode(), 128+int(syscall.SIGKILL); got != want {
		t.Errorf("ExitCode() = %d, want %d", got, want)
	}
}

func TestStopReachesTheGroup(t *testing.T) {
	t.Parallel()

	cmd := exec.CommandContext(t.Context(), "sh", "-c", "trap '' TERM; sleep 60 & echo $!; wait; wait")

	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	process, err := child.Start(cmd, child.Options{})
	if err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}

	grandchild, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}

	process.Stop(syscall.SIGTERM, 10*time.Millisecond)

	if got, want := process.ExitCode(), 128+int(syscall.SIGKILL); got != want {
		t.Errorf("ExitCode after Stop = %d, want %d", got, want)
	}

	waitGone(t, grandchild)
}

// waitGone waits until the process has ended; a zombie that nobody has collected yet has ended too.
func waitGone(t *testing.T, pid int) {
	t.Helper()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()

	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-tick.C {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err == nil && strings.Contains(string(stat), ") Z ") {
			return
		}

		if syscall.Kill(pid, 0) != nil {
			return
		}
	}

	t.Errorf("process %d still runs 10 s after Stop of its group", pid)
}
