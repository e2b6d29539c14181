package main

import (
	"strings"
	"testing"
)

// TestServerRefusesParameters of the URL that no reader of it knows.
func TestServerRefusesParameters(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := freshDatabase(t, name)
			wrong := withParameter(t, url, "statement_timeout", "soon")

			if name != "postgres" {
				wrong = withParameter(t, url, "sql_mode", "'soon'")
			}

			for _, url := range []string{withParameter(t, url, "nosuch", "1"), wrong} {
				for _, args := range []string{"ls", "run --name a -n true", "migrate up", "migrate status", "doctor"} {
					run(t, url, strings.Fields(args)...).want(exitUnavailable)
				}
			}
		})
	}
}

// TestDatabaseRequired forgets to name the database.
func TestDatabaseRequired(t *testing.T) {
	t.Parallel()

	const said = "no database is named, and --require-dsn"

	required := []string{"SQLLOCK_REQUIRE_DSN=1"}

	for _, args := range []string{
		"run --name a true", "ls", "show a", "wait a", "free a --reason x", "reap", "doctor", "migrate up", "migrate status",
	} {
		in(t, "", required, strings.Fields(args)...).want(exitUsage, said)
	}

	run(t, "", "run", "--require-dsn", "--name", "a", "true").want(exitUsage, said)
	in(t, "", required, "run", "--require-dsn=false", "--name", "a", "true").want(0)
	in(t, "", []string{"SQLLOCK_REQUIRE_DSN=0"}, "run", "--name", "a", "true").want(0)
	in(t, "", []string{"SQLLOCK_REQUIRE_DSN="}, "run", "--name", "a", "true").want(0)
	in(t, "", []string{"SQLLOCK_REQUIRE_DSN=maybe"}, "run", "--name", "a", "true").want(exitUsage, "SQLLOCK_REQUIRE_DSN=maybe is neither")

	// A file that is named is what was meant.
	url := migrated(t)
	in(t, url, required, "run", "--name", "a", "true").want(0)
	in(t, "", required, "run", "--dsn", url, "--name", "a", "true").want(0)
}

func TestVariablesOfFlags(t *testing.T) {
	t.Parallel()

	url := migrated(t)

	for _, c := range []struct {
		variable, args string
		code           int
		printed, said  string
	}{
		{"SQLLOCK_STRATEGY=insert", "run --name a -- sqllock ls", 0, " insert\n", ""},
		{"SQLLOCK_STRATEGY=insert", "run --name a --strategy cas -- sqllock ls", 0, " cas\n", ""},
		{"SQLLOCK_STRATEGY=", "run --name a -- sqllock ls", 0, " cas\n", ""},
		{"SQLLOCK_LEASE=50m", "run --name a -- sqllock ls", 0, " 49m", ""},
		{"SQLLOCK_LEASE=3000", "run --name a -- sqllock ls", 0, " 49m", ""},
		{"SQLLOCK_LEASE=50m", "run --name a --lease 20m -- sqllock ls", 0, " 19m", ""},
		{"SQLLOCK_STRATEGY=magic", "run --name a true", exitUsage, "", `SQLLOCK_STRATEGY: no strategy "magic"`},
		{"SQLLOCK_STRATEGY=magic", "doctor", exitUsage, "", `SQLLOCK_STRATEGY: no strategy "magic"`},
		{"SQLLOCK_STRATEGY=advisory", "doctor", exitFailed, "strategy advisory", ""},
		{"SQLLOCK_LEASE=soon", "run --name a true", exitUsage, "", "SQLLOCK_LEASE=soon is not a duration"},
		{"SQLLOCK_LEASE=1us", "run --name a true", exitUsage, "", "--lease 1µs: "},
		{"SQLLOCK_LEASE=-1", "doctor", exitUsage, "", "--lease -1s is not positive"},
		{"SQLLOCK_LEASE=soon", "run --name a --lease 20m true", 0, "", ""},
	} {
		// In this test the command is not called sqllock.
		args := strings.Fields(c.args)
		for i, arg := range args {
			if arg == "sqllock" {
				args[i] = prepare(t, url).cmd.Path
			}
		}

		i := in(t, url, []string{c.variable}, args...)
		i.want(c.code, c.said)

		if !strings.Contains(i.stdout.String(), c.printed) {
			t.Errorf("with %s %q printed:\n%s\nwant %q in it", c.variable, c.args, i.stdout.String(), c.printed)
		}
	}
}
