//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRunPassesTheLockAndTheStreams(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	script := `echo "$SQLLOCK_NAME $SQLLOCK_TOKEN ${#SQLLOCK_OWNER} $*"; cat; echo wrong >&2`

	i := prepare(t, url, "run", "--name", "a b", "--", "sh", "-c", script, "sh", "--name", "x")
	i.cmd.Stdin = strings.NewReader("in\n")
	i.start()
	i.wait()
	i.want(0, "wrong")

	fields := strings.Fields(i.stdout.String())
	if len(fields) != 7 {
		t.Fatalf("the command printed %q, want 7 fields", i.stdout.String())
	}

	token, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || token <= 0 {
		t.Errorf("SQLLOCK_TOKEN = %q, want a positive number", fields[2])
	}

	if fields[0]+" "+fields[1] != "a b" || fields[3] == "0" || strings.Join(fields[4:], " ") != "--name x in" {
		t.Errorf("the command printed %q", i.stdout.String())
	}

	second := run(t, url, "run", "--name", "a b", "--", "sh", "-c", "echo $SQLLOCK_TOKEN")
	if next, err := strconv.ParseInt(strings.TrimSpace(second.stdout.String()), 10, 64); err != nil || next <= token {
		t.Errorf("the second token is %q, want one larger than %d", second.stdout.String(), token)
	}
}

// TestRunPassesTheEnvironmentOn has variables of the user that begin as those of
// the lock do.
func TestRunPassesTheEnvironmentOn(t *testing.T) {
	t.Parallel()

	variables := []string{"SQLLOCK_NAMESPACE=one", "SQLLOCK_TOKEN_FILE=two", "SQLLOCK_OWNER_2X=three", "SQLLOCK_NAME_2=left"}
	i := in(t, migrated(t), variables, "run", "--name", "a", "--", "sh", "-c",
		`echo "$SQLLOCK_NAMESPACE $SQLLOCK_TOKEN_FILE $SQLLOCK_OWNER_2X $SQLLOCK_NAME $SQLLOCK_NAME_2"`)
	i.want(0)

	if got := i.stdout.String(); got != "one two three a \n" {
		t.Errorf("the command sees %q, want the user's variables and the lock's", got)
	}
}

func TestRunExitsAsTheCommand(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	plain := filepath.Join(t.TempDir(), "plain")

	if err := os.WriteFile(plain, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}

	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("\x00"), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		command []string
		want    int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 3"}, 3},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143},
		{[]string{"no-such-command-anywhere"}, exitNotFound},
		{[]string{filepath.Join(t.TempDir(), "none")}, exitNotFound},
		{[]string{plain}, exitNotExecutable},
		{[]string{broken}, exitNotExecutable},
	} {
		run(t, url, append([]string{"run", "--name", "a", "--no-wait"}, c.command...)...).want(c.want)
	}
}

func TestRunDoesNotWait(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	holder := hold(t, url, "--label", "the holder")

	run(t, url, "run", "--name", "a", "--no-wait", "true").want(exitConflict, `lock "a" is held`)
	run(t, url, "run", "--name", "a", "--no-wait", "--conflict-exit-code", "0", "true").want(0)
	run(t, url, "run", "--name", "a", "--wait", "1s", "--conflict-exit-code", "9", "true").want(9)
	run(t, url, "run", "--name", "b", "--no-wait", "true").want(0)

	// A waiter gets it when it is free.
	waiter := start(t, url, "run", "--name", "a", "--wait", "20s", "true")

	signalTo(t, holder, syscall.SIGTERM)
	holder.wait()
	holder.want(143)
	waiter.wait()
	waiter.want(0)
}

func TestRunEndsItsWaitOnASignal(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	hold(t, url)

	for sig, said := range map[syscall.Signal]string{syscall.SIGTERM: "terminated", syscall.SIGALRM: "alarm clock"} {
		for _, args := range [][]string{{"run", "-v", "--name", "a", "true"}, {"wait", "a"}} {
			waiter := start(t, url, args...)

			eventually(t, "the waiter waits", func() bool {
				return strings.Contains(waiter.stderr.String(), "waiting")
			})
			signalTo(t, waiter, sig)
			waiter.wait()
			waiter.want(exitSignal+int(sig), said)
		}
	}
}

// TestRunThatStartsNothingKeepsNothing lets sqllock open so few files that it cannot
// start a process.
func TestRunThatStartsNothingKeepsNothing(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	failed := 0

	for files := 6; files < 24; files++ {
		name := fmt.Sprintf("a%d", files)

		i := prepare(t, url, "run", "--name", name, "--min-hold", "1m", "true")
		i.cmd.Args = slices.Concat([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files), i.cmd.Path}, i.cmd.Args[1:])
		i.cmd.Path = "/bin/sh"
		i.start()

		if i.wait() == exitInternal {
			failed++
			run(t, url, "run", "--name", name, "--no-wait", "true").want(0)
		}
	}

	if failed == 0 {
		t.Error("every run could start its command")
	}
}

// TestRunEndedBeforeItsCommandKeepsNothing tells sqllock to end while it starts.
func TestRunEndedBeforeItsCommandKeepsNothing(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	ended := 0

	for try := range 40 {
		name := fmt.Sprintf("a%d", try)
		i := start(t, url, "run", "--name", name, "--min-hold", "1m", "true")

		<-time.After(time.Duration(try) * 3 * time.Millisecond)
		_ = i.cmd.Process.Signal(syscall.SIGTERM)

		i.wait()

		// Of a command that was killed it says nothing.
		if strings.Contains(i.stderr.String(), "ended by signal") {
			ended++
			run(t, url, "run", "--name", name, "--no-wait", "true").want(0)
		}
	}

	t.Logf("%d of the runs had begun, and their commands had not", ended)
}

func TestRunForwardsSignals(t *testing.T) {
	t.Parallel()

	passed := map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
		"ALRM": syscall.SIGALRM, "WINCH": syscall.SIGWINCH, "CONT": syscall.SIGCONT,
	}
	script := "trap 'echo got PIPE' PIPE; trap 'exit 5' TERM; "

	for name := range passed {
		script += fmt.Sprintf("trap 'echo got %s' %[1]s; ", name)
	}

	i := start(t, migrated(t), "run", "--name", "a", "--", "sh", "-c", script+"echo ready; while :; do sleep 0.02; done")
	eventually(t, "the command is ready", func() bool { return i.stdout.String() == "ready\n" })

	// This one is about what sqllock writes.
	signalTo(t, i, syscall.SIGPIPE)

	for name, sig := range passed {
		signalTo(t, i, sig)
		eventually(t, "the command got SIG"+name, func() bool {
			return strings.Contains(i.stdout.String(), "got "+name+"\n")
		})
	}

	if strings.Contains(i.stdout.String(), "PIPE") {
		t.Errorf("the command printed %q, want that SIGPIPE is not passed on", i.stdout.String())
	}

	signalTo(t, i, syscall.SIGTERM)
	i.wait()
	i.want(5)
}

// TestRunPassesTheKeyboardOn sends what the kernel sends to the foreground group
// for Ctrl-C, in which sqllock is and the command is not.
func TestRunPassesTheKeyboardOn(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	i := prepare(t, url, "run", "--name", "a", "--", "sh", "-c",
		`trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.02; done`)
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	i.start()
	eventually(t, "the command is ready", func() bool { return i.stdout.String() == "ready\n" })

	if err := syscall.Kill(-i.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}

	i.wait()
	i.want(9)

	if i.stdout.String() != "ready\ncaught\n" {
		t.Errorf("the command printed %q, want that it caught the signal once", i.stdout.String())
	}

	run(t, url, "run", "--name", "a", "--no-wait", "true").want(0)
}

// stubborn is a command whose child ignores SIGTERM. It prints both their
// numbers, and "term" when it is asked to end.
const stubborn = `trap 'echo term' TERM
sh -c 'trap "" TERM HUP INT; echo $$; while :; do sleep 0.05; done' &
echo $$
while :; do sleep 0.02; done`

// resist starts a run of "a" whose command is stubborn, and returns the processes that
// must not outlive the lock.
func resist(tb testing.TB, url string, flags ...string) (i *invocation, pids []int) {
	tb.Helper()

	i = start(tb, url, slices.Concat([]string{"run", "--name", "a"}, flags, []string{"--", "sh", "-c", stubborn})...)

	return i, i.pids(2)
}

func TestRunKillsTheGroupWhenTheLockIsTaken(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	i, pids := resist(t, url, "--lease", "900ms")

	if _, err := sqlite(t, url).ExecContext(t.Context(), "DELETE FROM sqllock_locks"); err != nil {
		t.Fatal(err)
	}

	i.wait()
	i.want(exitLost, "lost")
	gone(t, pids)
}

// TestRunKillsTheGroupBeforeTheLeaseEnds lets no renewal through.
func TestRunKillsTheGroupBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	i, pids := resist(t, url, "--lease", "3s", "--on-loss", "term,kill=1s")
	until := freeze(t, url)

	goneBefore(t, pids, until)

	if !strings.Contains(i.stdout.String(), "term\n") {
		t.Errorf("the command printed %q, want it to have got SIGTERM first", i.stdout.String())
	}

	i.wait()
	i.want(exitLost, "cannot be renewed")
}

// freeze locks the file for writers and returns when the lease ends.
func freeze(t *testing.T, url string) time.Time {
	t.Helper()

	conn, err := sqlite(t, url).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		_, _ = conn.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK")
		_ = conn.Close()
	})

	return leaseEnd(t, conn)
}

func leaseEnd(t *testing.T, conn *sql.Conn) time.Time {
	t.Helper()

	var micros int64

	if err := conn.QueryRowContext(t.Context(), "SELECT max(expires_at) FROM sqllock_locks").Scan(&micros); err != nil {
		t.Fatal(err)
	}

	return time.UnixMicro(micros)
}

// TestRunLeavesNothingBehind looks after a background process of a command
// that has ended.
func TestRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	i := start(t, migrated(t), "run", "--name", "a", "--", "sh", "-c",
		`sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' & sleep 0.3`)
	pids := i.pids(1)

	i.wait()
	i.want(0)

	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d lives after the lock was released", pid)
		}
	}
}

// TestRunDiesWithItsGroup kills sqllock itself, which can do nothing then.
func TestRunDiesWithItsGroup(t *testing.T) {
	t.Parallel()

	i, pids := resist(t, migrated(t))

	signalTo(t, i, syscall.SIGKILL)
	gone(t, pids)
	i.wait()
}

// TestRunKilledAsTheCommandBegins kills sqllock with the first byte of the
// command, which has a child then that the kernel does not kill with sqllock.
func TestRunKilledAsTheCommandBegins(t *testing.T) {
	t.Parallel()

	url := migrated(t)

	for range 20 {
		i := prepare(t, url, "run", "--name", "a", "--", "sh", "-c",
			`sh -c 'trap "" TERM HUP INT; echo $PPID $$; while :; do sleep 0.05; done'; exit 0`)
		i.cmd.Stdout = nil

		stdout, err := i.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}

		i.start()

		pids := make([]int, 2)
		if _, err := fmt.Fscanln(stdout, &pids[0], &pids[1]); err != nil {
			t.Fatalf("the command said nothing: %v; stderr: %s", err, i.stderr.String())
		}

		signalTo(t, i, syscall.SIGKILL)
		gone(t, pids)
		i.wait()

		if _, err := sqlite(t, url).ExecContext(t.Context(), "DELETE FROM sqllock_locks"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunStopped stops sqllock for longer than its lease.
func TestRunStopped(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	i, pids := resist(t, url, "--lease", "2s")

	end := freeze(t, url) // first: a run that was stopped while it writes would keep the file locked
	signalTo(t, i, syscall.SIGSTOP)
	t.Cleanup(func() { _ = i.cmd.Process.Signal(syscall.SIGCONT) })

	goneBefore(t, pids, end)

	// The watchdog is early. A run that goes on before the lock is lost says that the command was killed.
	time.Sleep(time.Until(end)) //nolint:forbidigo // for the lease, by the clock
	signalTo(t, i, syscall.SIGCONT)
	i.wait()
	i.want(exitLost)
}

// hold starts a run that keeps the lock "a", and waits until it has it.
func hold(t *testing.T, url string, flags ...string) *invocation {
	t.Helper()

	args := append(append([]string{"run", "--name", "a"}, flags...), "--", "sh", "-c", "echo ready; exec sleep 60")
	i := start(t, url, args...)

	eventually(t, "the holder has the lock", func() bool { return i.stdout.String() == "ready\n" })
	t.Cleanup(func() { _ = i.cmd.Process.Signal(syscall.SIGTERM) })

	return i
}

// pids waits for the command to print so many process numbers.
func (i *invocation) pids(n int) []int {
	i.t.Helper()

	var pids []int

	eventually(i.t, fmt.Sprintf("the command printed %d numbers; stderr: %s", n, i.stderr.String()), func() bool {
		pids = nil

		for _, field := range strings.Fields(i.stdout.String()) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}

		return len(pids) == n
	})

	i.t.Cleanup(func() {
		for _, pid := range pids {
			if i.t.Failed() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})

	return pids
}

func signalTo(t *testing.T, i *invocation, sig syscall.Signal) {
	t.Helper()

	if err := i.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// gone waits until none of the processes lives.
func gone(t *testing.T, pids []int) {
	t.Helper()

	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
}

// goneBefore is gone, by a time. It polls, so what it finds has been so for a moment.
func goneBefore(t *testing.T, pids []int, until time.Time) {
	t.Helper()
	gone(t, pids)

	if late := time.Since(until); late > 0 {
		t.Errorf("the group died %s after the lease, want before", late)
	}
}

// alive says whether a process runs. A dead one may be there still, until its
// parent looks.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || !hasProc()
	}

	_, after, _ := strings.Cut(string(status), ") ")

	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

func hasProc() bool {
	_, err := os.Stat("/proc/self/stat")

	return err == nil
}
