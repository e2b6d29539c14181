package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// inContainer makes the invocation run as process 1 of its own PID namespace,
// as in a container.
func inContainer(t *testing.T, i *invocation) {
	t.Helper()

	unshared(t, i, "--pid", "--fork", "--kill-child", "--mount-proc")
}

// unshared makes the invocation run in namespaces of its own.
func unshared(t *testing.T, i *invocation, into ...string) {
	t.Helper()

	if os.Getuid() != 0 {
		into = append(into, "--user", "--map-root-user")
	}

	if out, err := exec.Command("unshare", append(slices.Clone(into), "true")...).CombinedOutput(); err != nil {
		t.Skipf("this machine gives no namespaces: %v: %s", err, out)
	}

	path, err := exec.LookPath("unshare")
	if err != nil {
		t.Fatal(err)
	}

	i.cmd.Args = slices.Concat([]string{path}, into, i.cmd.Args)
	i.cmd.Path = path
}

// TestRunAsProcessOne leaves orphans behind, which become children of process
// 1, and counts those whose status nobody took.
func TestRunAsProcessOne(t *testing.T) {
	t.Parallel()

	i := prepare(t, migrated(t), "run", "--name", "a", "--", "sh", "-c", `
for n in 1 2 3; do sh -c 'setsid sleep 0.1 &'; done
sleep 0.7
cat /proc/[0-9]*/stat | grep -c ") Z "
test $PPID = 1 && exit 7`)
	inContainer(t, i)
	i.start()
	i.wait()
	i.want(7)

	if zombies := strings.TrimSpace(i.stdout.String()); zombies != "0" {
		t.Errorf("%s zombies are there, want 0", zombies)
	}
}

// TestRunAsProcessOneForwardsSignals because process 1 gets only those signals
// that it handles.
func TestRunAsProcessOneForwardsSignals(t *testing.T) {
	t.Parallel()

	i := prepare(t, migrated(t), "run", "--name", "a", "--", "sh", "-c",
		`trap 'exit 5' TERM; kill -TERM 1; while :; do sleep 0.02; done`)
	inContainer(t, i)
	i.start()
	i.wait()
	i.want(5)
}

// TestRunWithoutDevices has an empty /proc and an empty /dev, as a bare chroot has.
func TestRunWithoutDevices(t *testing.T) {
	t.Parallel()

	i := prepare(t, migrated(t), "run", "--name", "a", "--", "sh", "-c", "test ! -e /proc/self && test ! -e /dev/null && exit 7")
	i.cmd.Args = append([]string{"sh", "-c", `mount -t tmpfs none /proc && mount -t tmpfs none /dev && exec "$0" "$@"`}, i.cmd.Args...)
	unshared(t, i, "--mount")
	i.start()
	i.wait()
	i.want(7)
}

// TestRunBelowOneThatDoesNotReap has a process 1, as of many a container, that never takes the status of an orphan. What the
// command leaves behind is dead all the same when it was killed.
func TestRunBelowOneThatDoesNotReap(t *testing.T) {
	t.Parallel()

	i := prepare(t, migrated(t), "run", "--name", "a", "--", "sh", "-c", "sleep 60 & exit 7")
	i.cmd.Args = append([]string{"sh", "-c", `("$0" "$@"; echo "exited with $?") & exec sleep 3`}, i.cmd.Args...)
	inContainer(t, i)
	i.start()
	i.wait()
	i.want(0)

	if said := i.stdout.String() + i.stderr.String(); said != "exited with 7\n" {
		t.Errorf("it said %q, want that it exited with 7, and no more", said)
	}
}
