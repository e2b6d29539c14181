//go:build unix

package process

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// slow is a number in a message during which this process gets no processor.
type slow struct{}

// Format writes it late.
func (slow) Format(f fmt.State, _ rune) {
	<-time.After(100 * time.Millisecond)

	_, _ = f.Write([]byte("1"))
}

// TestTellOnABusyMachine is slow to tell a guard something, which is no fault of the
// guard's.
func TestTellOnABusyMachine(t *testing.T) {
	t.Parallel()

	g := reader(t)

	for range 3 {
		g.tell("until %d\n", slow{})
	}

	<-time.After(100 * time.Millisecond)

	if ended(t, g) {
		t.Fatal("the guard was ended though it reads")
	}
}

// TestTellWhoDoesNotRead fills the pipe of a guard.
func TestTellWhoDoesNotRead(t *testing.T) {
	t.Parallel()

	g := reader(t)

	if err := g.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	for range 100_000 {
		g.tell("until %d\n", time.Duration(1))
	}

	for end := time.Now().Add(10 * time.Second); !ended(t, g); {
		if time.Now().After(end) {
			t.Fatal("the guard was not ended though it does not read")
		}

		<-time.After(time.Millisecond)
	}
}

// reader is a guard that only reads.
func reader(t *testing.T) *guard {
	t.Helper()

	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()

	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec cat >/dev/null")
	cmd.Stdin = read

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_ = write.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	return &guard{process: cmd.Process, pipe: write, begun: time.Now()}
}

// ended says whether a guard has ended.
func ended(t *testing.T, g *guard) bool {
	t.Helper()

	var status syscall.WaitStatus

	pid, err := syscall.Wait4(g.process.Pid, &status, syscall.WNOHANG, nil)
	if err != nil {
		t.Fatal(err)
	}

	return pid == g.process.Pid
}
