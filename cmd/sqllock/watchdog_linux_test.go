package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// watchdogs are the processes that watch over a run at this moment.
func watchdogs(t *testing.T, run int) []int {
	t.Helper()

	return childrenOf(t, run, watchdogCommand)
}

// childrenOf are the processes of a parent that have the argument.
func childrenOf(t *testing.T, parent int, argument string) []int {
	t.Helper()

	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}

	var pids []int

	for _, file := range files {
		folder := filepath.Dir(file)
		line, _ := os.ReadFile(file) // it may be gone
		stat, _ := os.ReadFile(filepath.Join(folder, "stat"))
		_, after, _ := strings.Cut(string(stat), ") ")

		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			t.Fatal(err)
		}

		fields := strings.Fields(after)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) && strings.Contains(string(line), "\x00"+argument+"\x00") && alive(pid) {
			pids = append(pids, pid)
		}
	}

	return pids
}

func kill(t *testing.T, sig syscall.Signal, pids ...int) {
	t.Helper()

	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
}

// watched waits until as many watch over a run as there were, and none of them
// is one of those.
func watched(t *testing.T, run int, before []int) {
	t.Helper()

	if len(before) == 0 {
		t.Fatal("nobody watched over the run")
	}

	eventually(t, "others watch over the run", func() bool {
		now := watchdogs(t, run)

		return len(now) == len(before) && !slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(before, pid) })
	})
}

// TestRunReplacesItsWatchdog ends or stops what watches over a run, and kills
// the run when it has replaced it.
func TestRunReplacesItsWatchdog(t *testing.T) {
	t.Parallel()

	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()

			i, pids := resist(t, migrated(t))
			said := []string{"replaced"}

			for range 3 {
				before := watchdogs(t, i.cmd.Process.Pid)
				kill(t, sig, before...)
				watched(t, i.cmd.Process.Pid, before)

				said = append(said, fmt.Sprintf("process %d", before[0]))
			}

			signalTo(t, i, syscall.SIGKILL)
			gone(t, pids)
			i.wait()
			i.want(-1, said[:len(said)-1]...) // of the last it may be killed before it can say so
		})
	}
}

// TestRunKilledByName kills all processes of the run's name, as pkill does.
func TestRunKilledByName(t *testing.T) {
	t.Parallel()

	nameOf := func(pid int) string {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			t.Fatal(err)
		}

		return string(name)
	}

	i, pids := resist(t, migrated(t))
	mine := nameOf(i.cmd.Process.Pid)
	others := watchdogs(t, i.cmd.Process.Pid)

	eventually(t, "its watchdog has another name", func() bool {
		return !slices.ContainsFunc(others, func(pid int) bool { return nameOf(pid) == mine })
	})

	signalTo(t, i, syscall.SIGKILL)
	gone(t, pids)
	i.wait()
}

// withoutFiles lets a run open no more files, so that it can start no process.
func withoutFiles(t *testing.T, i *invocation) {
	t.Helper()

	if err := unix.Prlimit(i.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: 3}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestRunEndsUnwatched lets nobody be started who would watch over the run.
func TestRunEndsUnwatched(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	i, pids := resist(t, url)

	withoutFiles(t, i)
	kill(t, syscall.SIGKILL, watchdogs(t, i.cmd.Process.Pid)...)
	gone(t, pids)
	i.wait()
	i.want(exitInternal, "start the watchdog", "the command was ended")
	run(t, url, "run", "--name", "a", "--no-wait", "true").want(0)
}

// TestRunReplacesItsWatchdogWithoutItsFile removes the program's file, as an upgrade
// does, and then ends who watches over the run.
func TestRunReplacesItsWatchdogWithoutItsFile(t *testing.T) {
	t.Parallel()

	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}

	mine := filepath.Join(t.TempDir(), "sqllock.test")
	if err := os.WriteFile(mine, program, 0o700); err != nil {
		t.Fatal(err)
	}

	i := prepare(t, migrated(t), "run", "--name", "a", "--", "sh", "-c", stubborn)
	i.cmd.Path = mine
	i.start()

	pids := i.pids(2)

	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}

	before := watchdogs(t, i.cmd.Process.Pid)
	kill(t, syscall.SIGKILL, before...)
	watched(t, i.cmd.Process.Pid, before)

	eventually(t, "the run says so", func() bool { return strings.Contains(i.stderr.String(), "was replaced") })
	signalTo(t, i, syscall.SIGKILL)
	gone(t, pids)
	i.wait()
}

// TestRunAsProcessOneReplacesItsWatchdog because the status of every child
// comes to who takes that of orphans.
func TestRunAsProcessOneReplacesItsWatchdog(t *testing.T) {
	t.Parallel()

	i := prepare(t, migrated(t), "run", "--name", "a", "--", "sh", "-c", `trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done`)
	inContainer(t, i)
	i.start()
	eventually(t, "the command is ready", func() bool { return i.stdout.String() == "ready\n" })

	// What was started is unshare, and the run is its child.
	runs := childrenOf(t, i.cmd.Process.Pid, "run")
	if len(runs) != 1 {
		t.Fatalf("there are runs %v, want one", runs)
	}

	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		before := watchdogs(t, runs[0])
		kill(t, sig, before...)
		watched(t, runs[0], before)
	}

	kill(t, syscall.SIGTERM, runs[0])
	i.wait()
	i.want(7)
}
