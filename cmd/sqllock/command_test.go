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
		{"bogus", "unknown command \"bogus\" for \"sqllock\"; see: sqllock --help\n"},
		{"runn", "Did you mean this? run; see: sqllock --help\n"},
		{"migrate", "say up, down, status or print"},
		{"migrate sideways", "unknown command \"sideways\" for \"sqllock migrate\"; see: sqllock migrate --help\n"},
		{"version extra", "see: sqllock version --help\n"},
		{"help bogus", "no command \"bogus\"; see: sqllock --help\n"},
		{"help migrate sideways", "no command \"migrate sideways\""},
		{"completion bogus", "unknown command \"bogus\" for \"sqllock completion\"; see: sqllock completion --help\n"},
		{"migrate up --bogus", "unknown flag"},
		{"migrate print --dialect oracle", "no dialect"},
		{"run", "no command to run"},
		{"run true", "--name"},
		{"run --name a --wait 1s --no-wait true", "cannot be used together"},
		{"run --name a --wait 1s -n true", "cannot be used together"},
		{"run -n a true", "no lock is named"},
		{"run --name -n true", "a --name begins with -"},
		{"run --name=--no-wait true", "a --name begins with -"},
		{"run --name a --wait -1s true", "negative"},
		{"run --name a --wait soon true", "not a duration; write seconds"},
		{"run --name a --wait inf true", "too long"},
		{"run --name a --lease nan true", "not a duration"},
		{"run --name a --min-hold 1e30 true", "too long"},
		{"run --name a --on-loss term,kill=20s true", "--on-loss"},
		{"run --name a --on-loss bogus,kill=1s true", "--on-loss bogus,kill=1s: there is no such signal; write kill"},
		{"run --name a --on-loss term true", "must end with kill"},
		{"run --name a --on-loss kill=2s true", "kill has a time only after another signal"},
		{"run --name a --name a true", "twice"},
		{"run --name a --", "no command"},
		{"run --name a --conflict-exit-code 300 true", "--conflict-exit-code"},
		{"run --name a --strategy magic true", "no strategy"},
		{"run --name a --lease 1us true", "invalid option: --lease 1µs: a lease"},
		{"run --name a --min-hold -1s true", "--min-hold -1s must be"},
		{"run --name a --strategy advisory true", "sqllock: --strategy advisory: not supported on SQLite, which has no advisory locks; use --strategy cas\n"},
		{"doctor --holders -1", "--holders -1 is negative"},
		{"doctor --fail-on anything", "--fail-on anything is not"},
		{"reap --retention 1s", "--retention 1s is shorter than a minute"},
		{"run --name a --dsn= true", "--dsn is empty"},
		{"ls --dsn-file=", "--dsn-file is empty"},
		{"migrate up --dsn=", "--dsn is empty"},
		{"run --name a --dsn oracle://app@db/app true", "the database must be a URL"},
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
		for _, args := range [][]string{{"run", "--name", "a", "true"}, {"migrate", "up"}, {"migrate", "status"}} {
			i := run(t, url, args...)
			i.want(exitUnavailable, "refused")

			if strings.Contains(i.stderr.String(), "\t") || strings.Count(i.stderr.String(), "refused") != 1 {
				t.Errorf("%q on %s said %q, want the same once and without tabs", args, url, i.stderr.String())
			}

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
	run(t, url+".d/locks.db", "migrate", "up").want(exitUnavailable, "no folder for sqlite:")
	run(t, "", "run", "--dsn", url, "--name", "a", "true").want(exitUnavailable, "sqllock migrate up --dsn "+url)

	// A file without tables.
	run(t, url, "migrate", "up").want(0)
	run(t, url, "migrate", "down").want(0)

	i := run(t, url, "run", "--name", "a", "true")
	i.want(exitUnavailable, "sqllock migrate up")

	if said := i.stderr.String(); strings.Count(said, "migrate") != 1 {
		t.Errorf("a missing table is %q, want the way to fix it once", said)
	}
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
		{"migrate print --functions", "FUNCTION sqllock_acquire"},
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

		state := []string{"XDG_STATE_HOME=" + t.TempDir()}

		const said = "for this machine and user only"

		first := in(t, "", state, "run", "--name", "a", "true")
		first.want(0, "locks are kept in", said)
		in(t, "", state, "run", "--name", "a", "true").want(0, said)
		in(t, "", state, "wait", "a").want(0, said)
		in(t, "", state, "migrate", "up").want(0, said)
		in(t, "", state, "migrate", "status").want(0, said)

		file := strings.TrimSuffix(strings.Fields(strings.SplitAfter(first.stderr.String(), "locks are kept in")[1])[0], ",")

		info, err := os.Stat(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}

		if info.Mode().Perm() != 0o700 {
			t.Errorf("the folder's mode is %o, want 700", info.Mode().Perm())
		}

		if i := in(t, "", state, "run", "--dsn", "sqlite:"+file, "--name", "a", "true"); i.stderr.String() != "" {
			t.Errorf("with --dsn run said %q, want nothing", i.stderr.String())
		}
	})

	// What a script's unset variable makes.
	for _, c := range []struct{ variable, said string }{
		{"DATABASE_URL=", "DATABASE_URL is empty"},
	} {
		t.Run(c.variable, func(t *testing.T) {
			t.Parallel()

			for _, args := range [][]string{{"run", "--name", "a", "true"}, {"wait", "a"}, {"doctor"}, {"migrate", "up"}} {
				in(t, "", []string{c.variable}, args...).want(exitUsage, c.said)
			}
		})
	}
}

// TestBusyFile has another process write to the file for long.
func TestBusyFile(t *testing.T) {
	t.Parallel()

	url := migrated(t)

	tx, err := sqlite(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()

	if _, err := tx.ExecContext(t.Context(), "INSERT INTO sqllock_locks (name) VALUES ('other')"); err != nil {
		t.Fatal(err)
	}

	for _, strategy := range []string{"cas", "insert"} {
		i := run(t, withParameter(t, url, "_pragma", "busy_timeout(100)"), "run", "--name", `a"b`, "--strategy", strategy, "--no-wait", "true")
		i.want(exitUnavailable, `lock "a\"b"`, "another process writes to the database file, and did not end in time")
	}
}

// TestReleaseFails has another process write when the lock is to be released.
func TestReleaseFails(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	i := prepare(t, withParameter(t, url, "_pragma", "busy_timeout(100)"), "run", "--name", "a", "--lease", "1m", "--", "cat")

	in, err := i.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	i.start()
	eventually(t, "a is held", func() bool { return run(t, url, "show", "a").code() == 0 })

	tx, err := sqlite(t, url).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()

	if _, err := tx.ExecContext(t.Context(), "INSERT INTO sqllock_locks (name) VALUES ('other')"); err != nil {
		t.Fatal(err)
	}

	_ = in.Close()

	i.wait()
	i.want(0, `release lock "a": `, "; it is free after 1m0s, at the latest\n")

	if said := i.stderr.String(); strings.Count(said, "it is free after") != 1 || strings.Contains(said, "background") {
		t.Errorf("a release that failed is told as %q, want once what becomes of it", said)
	}
}

// TestCompletion asks as a shell does.
func TestCompletion(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ args, want string }{
		// There is no database to ask, and files are no names.
		{"run --name ", ""},
		{"ls ", ""},
		{"show ", ""},
		{"run --strategy ", "cas\ninsert\nforupdate\nadvisory\n"},
		{"doctor --strategy ", "cas\ninsert\nforupdate\nadvisory\n"},
		{"doctor --fail-on ", "error\nwarning\nnote\n"},
		{"migrate print --dialect ", "postgres\nmysql\ntidb\nsqlite\n"},
	} {
		i := run(t, "", append([]string{"__complete"}, strings.Split(c.args, " ")...)...)
		i.want(0)

		if got := i.stdout.String(); got != c.want+":4\n" {
			t.Errorf("sqllock %s is completed with %q, want %q, and no files", c.args, got, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()

	info := &debug.BuildInfo{GoVersion: "go1.26.0"}
	info.Main.Version = "v1.2.3"

	if got, want := version(info, true), "sqllock v1.2.3 go1.26.0"; got != want {
		t.Errorf("version() = %q, want %q", got, want)
	}

	for _, arg := range []string{"version", "--version"} {
		i := run(t, "", arg)
		i.want(0)

		if !strings.HasPrefix(i.stdout.String(), "sqllock ") {
			t.Errorf("sqllock %s printed %q", arg, i.stdout.String())
		}
	}
}

// TestFullDisk has what is printed go nowhere.
func TestFullDisk(t *testing.T) {
	t.Parallel()

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no device that is full: %v", err)
	}
	defer full.Close()

	url := migrated(t)

	for _, args := range []string{
		"ls", "ls --json", "ls --watch", "show a", "doctor", "reap", "version", "--version", "--help", "exit-codes", "completion bash",
		"migrate status", "migrate up", "migrate print",
	} {
		i := prepare(t, url, strings.Fields(args)...)
		i.cmd.Stdout = full
		i.start()
		i.wait()
		i.want(exitInternal)

		if got, want := i.stderr.String(), "sqllock: write /dev/stdout: no space left on device\n"; got != want {
			t.Errorf("%s on a full disk said %q, want %q", args, got, want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()

	for _, args := range [][]string{{"help", "exit-codes"}, {"run", "--help"}, {"help", "run"}} {
		i := run(t, "", args...)
		i.want(0)

		if !strings.Contains(i.stdout.String(), "76   the lock was lost") {
			t.Errorf("%q does not tell the exit codes:\n%s", args, i.stdout.String())
		}
	}
}
