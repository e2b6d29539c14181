package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/testdatabases"
)

// sharing is a run of "a" whose command starts another that shares the lock, out of
// its process group. Both have the flags. The inner command prints its number.
func sharing(t *testing.T, url, then string, flags ...string) (outer *invocation, folder string) {
	t.Helper()

	folder = t.TempDir()
	script := fmt.Sprintf(`cd %s
setsid sh -c '"$0" run --name a --shared-env %s -- sh -c "echo \$\$ >pid; exec sleep 60" 2>err; echo $? >code' "$0" &
while ! [ -s pid ]; do sleep 0.02; done
%s`, folder, strings.Join(flags, " "), then)

	args := append([]string{"run", "--name", "a", "--lease", "3s"}, flags...)
	outer = start(t, url, append(args, "--", "sh", "-c", script, os.Args[0])...)

	return outer, folder
}

// inFile waits for a program to write a line into a file.
func inFile(t *testing.T, folder, file string) string {
	t.Helper()

	var text []byte

	eventually(t, "there is a line in "+file, func() bool {
		text, _ = os.ReadFile(filepath.Join(folder, file))

		return strings.HasSuffix(string(text), "\n")
	})

	return strings.TrimSpace(string(text))
}

// endedWithTheLock looks that the inner command ends soon after the lock.
func endedWithTheLock(t *testing.T, folder string) {
	t.Helper()

	pid, err := strconv.Atoi(inFile(t, folder, "pid"))
	if err != nil {
		t.Fatal(err)
	}

	begun := time.Now()

	gone(t, []int{pid})

	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the inner command ended %s after the lock", took)
	}

	if code := inFile(t, folder, "code"); code != strconv.Itoa(exitLost) {
		t.Errorf("the inner run exited with %s, want %d", code, exitLost)
	}

	if said := inFile(t, folder, "err"); !strings.Contains(said, `lock "a" was lost: the run around this one does not hold it any more`) {
		t.Errorf("the inner run said %q", said)
	}
}

// TestRunSharesUntilTheOuterRunEnds leaves an inner run behind.
func TestRunSharesUntilTheOuterRunEnds(t *testing.T) {
	t.Parallel()

	for _, name := range testdatabases.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := migratedOn(t, name)

			outer, folder := sharing(t, url, "exit 0")
			outer.wait()
			outer.want(0)
			endedWithTheLock(t, folder)
		})
	}
}

// TestRunSharesUntilTheOuterReaderEnds leaves an inner run behind, while another process reads
// that has the same owner and token.
func TestRunSharesUntilTheOuterReaderEnds(t *testing.T) {
	t.Parallel()

	for _, name := range testdatabases.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := migratedOn(t, name)

			other := start(t, url, "run", "--shared", "--name", "a", "--", "sleep", "60")
			eventually(t, "the other reads", func() bool { return run(t, url, "show", "a").code() == 0 })

			outer, folder := sharing(t, url, "exit 0", "--shared")
			outer.wait()
			outer.want(0)
			endedWithTheLock(t, folder)
			run(t, url, "show", "a").want(0)

			_ = other.cmd.Process.Kill()
			other.wait()
		})
	}
}

// TestRunSharesUntilTheLockIsTaken takes the lock away, and gives it to another.
func TestRunSharesUntilTheLockIsTaken(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	outer, folder := sharing(t, url, "exec sleep 60")

	inFile(t, folder, "pid")
	run(t, url, "free", "a", "--token", tokenOf(t, url, "a"), "--force", "--reason", "test").want(0)

	next := start(t, url, "run", "--name", "a", "--", "sleep", "10")

	endedWithTheLock(t, folder)
	outer.wait()
	outer.want(exitLost)
	_ = next.cmd.Process.Kill()
	next.wait()
}

// TestRunSharesForLong keeps the lock for longer than its lease.
func TestRunSharesForLong(t *testing.T) {
	t.Parallel()

	for _, flags := range [][]string{nil, {"--shared"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()

			outer, folder := sharing(t, migrated(t), "sleep 5; kill $(cat pid); while ! [ -s code ]; do sleep 0.02; done; cat code", flags...)
			outer.wait()
			outer.want(0)

			// It was not asked to end before.
			if code := strings.TrimSpace(outer.stdout.String()); code != "143" {
				t.Errorf("the inner run exited with %q, want 143; it said %s", code, inFile(t, folder, "err"))
			}
		})
	}
}

// TestRunSharesInItsGroup has the inner command take the place of the inner run.
func TestRunSharesInItsGroup(t *testing.T) {
	t.Parallel()

	const group = `echo $(ps -o pgid= -p $$) $SQLLOCK_GROUP $SQLLOCK_GROUP_2`

	// Names that are shared, and not, between them.
	for _, c := range []struct{ args, same string }{
		{`run --name a --shared-env`, "one"},
		{`run --name b -- "$0" run --name a --shared-env`, "other"},
		{`run --name b -- "$0" run --name b --name a --shared-env`, "other"},
	} {
		i := run(t, migrated(t), "run", "--name", "a", "--", "sh", "-c", `echo $$; "$0" `+c.args+` -- sh -c '`+group+`'`, os.Args[0])
		i.want(0)

		fields := strings.Fields(i.stdout.String())
		if len(fields) < 3 || fields[1] != fields[2] || (fields[0] == fields[1]) != (c.same == "one") || fields[len(fields)-1] != fields[1] {
			t.Errorf("%s printed %q, want one group, that of the %s run", c.args, fields, c.same)
		}
	}
}
