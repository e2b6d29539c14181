package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		args string
		said string
	}{
		{"bogus", "unknown command"},
		{"migrate", "say up, down, status or print"},
		{"migrate sideways", "unknown command"},
		{"migrate up --bogus", "unknown flag"},
		{"migrate print --dialect oracle", "no dialect"},
		{"run", "no command to run"},
		{"run true", "--name"},
		{"run --name a --wait 1s --no-wait true", "exclude each other"},
		{"run --name a --wait -1s true", "negative"},
		{"run --name a --grace 20s true", "--grace"},
		{"run --name a --conflict-exit-code 300 true", "--conflict-exit-code"},
		{"run --name a --strategy magic true", "no strategy"},
		{"run --name a --lease 1us true", "lease"},
		{"run --name a --dsn oracle://app:s3cret@db/app true", "no database"},
	} {
		i := run(t, migrated(t), strings.Fields(c.args)...)
		i.want(exitUsage, c.said)

		if strings.Contains(i.stderr.String(), "s3cret") {
			t.Errorf("%q shows the password: %s", c.args, i.stderr.String())
		}
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()

	for _, url := range []string{"postgres://app:s3cret@127.0.0.1:1/app", "mysql://app:s3cret@127.0.0.1:1/app"} {
		for _, args := range [][]string{{"run", "--name", "a", "true"}, {"migrate", "up"}, {"migrate", "status"}, {"demo"}} {
			i := run(t, url, args...)
			i.want(exitUnavailable, "refused")

			if strings.Contains(i.stderr.String(), "s3cret") || strings.Count(i.stderr.String(), "\n") != 1 {
				t.Errorf("%q on %s said %q, want one line without the password", args, url, i.stderr.String())
			}
		}
	}
}

// TestMissingTables makes sure that the message says what to do.
func TestMissingTables(t *testing.T) {
	t.Parallel()

	url := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")

	run(t, url, "run", "--name", "a", "true").want(exitUnavailable, "no database", "sqllock migrate up")
	run(t, "", "run", "--dsn", url, "--name", "a", "true").want(exitUnavailable, "sqllock migrate up --dsn "+url)

	// A file without tables.
	run(t, url, "migrate", "up").want(0)
	run(t, url, "migrate", "down").want(0)
	run(t, url, "run", "--name", "a", "true").want(exitUnavailable, "sqllock migrate up")
}

func TestMigrate(t *testing.T) {
	t.Parallel()

	url := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")

	for _, c := range []struct{ args, want string }{
		{"migrate up", "applied 00001_create_locks.sql"},
		{"migrate up", "nothing to apply"},
		{"migrate status", "applied 2"},
		{"migrate down --all", "rolled back 00001_create_locks.sql"},
		{"migrate down", "nothing to roll back"},
		{"migrate status", "pending"},
		{"migrate up", "applied 00001_create_locks.sql"},
		{"migrate print", "(sqlite)"},
		{"migrate print --dialect postgres", "timestamptz"},
	} {
		i := run(t, url, strings.Fields(c.args)...)
		i.want(0)

		if !strings.Contains(i.stdout.String(), c.want) {
			t.Errorf("%s printed:\n%s\nwant %q in it", c.args, i.stdout.String(), c.want)
		}
	}
}

// TestNoDatabaseNamed is the first thing that many will do.
func TestNoDatabaseNamed(t *testing.T) {
	t.Parallel()

	t.Run("run", func(t *testing.T) {
		t.Parallel()

		first := run(t, "", "run", "--name", "a", "true")
		first.want(0, "locks are kept in")

		file := strings.Fields(strings.SplitAfter(first.stderr.String(), "locks are kept in")[1])[0]

		info, err := os.Stat(filepath.Dir(strings.TrimSuffix(file, ",")))
		if err != nil {
			t.Fatal(err)
		}

		if info.Mode().Perm() != 0o700 {
			t.Errorf("the folder's mode is %o, want 700", info.Mode().Perm())
		}
	})
}

func TestVersion(t *testing.T) {
	t.Parallel()

	info := &debug.BuildInfo{GoVersion: "go1.26.0", Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	info.Main.Version = "v1.2.3"

	if got, want := version(info, true), "sqllock v1.2.3 0123456789ab (changed) go1.26.0"; got != want {
		t.Errorf("version() = %q, want %q", got, want)
	}

	i := run(t, "", "version")
	i.want(0)

	if !strings.HasPrefix(i.stdout.String(), "sqllock ") {
		t.Errorf("sqllock version printed %q", i.stdout.String())
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()

	for _, args := range [][]string{{"help", "exit-codes"}, {"run", "--help"}} {
		i := run(t, "", args...)
		i.want(0)

		if !strings.Contains(i.stdout.String(), "76   the lock was lost") {
			t.Errorf("%q does not tell the exit codes:\n%s", args, i.stdout.String())
		}
	}
}
