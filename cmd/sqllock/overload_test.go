package main

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/overload"
)

// TestOverloads uses the command, as an administrator, in a database in which
// another user has made operators and functions that PostgreSQL would rather have
// than those of pg_catalog, if it were not told which.
func TestOverloads(t *testing.T) {
	t.Parallel()

	modes := []string{"cache_statement", "exec", "simple_protocol"}
	if testing.Short() {
		modes = modes[:1]
	}

	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()

			url := withParameter(t, overloaded(t), "default_query_exec_mode", mode)

			for _, args := range [][]string{
				{"migrate", "status"}, {"migrate", "up"}, {"migrate", "up"}, {"migrate", "status"}, {"doctor"}, {"ls"},
			} {
				unharmed(t, url, 0, args...)
			}

			for _, strategy := range []string{"cas", "insert", "forupdate", "advisory"} {
				// A machine that has much to do renews it in time.
				under := []string{"run", "--strategy", strategy, "--lease", "15s", "--name", "a", "--"}

				unharmed(t, url, 0, append(under, "true")...)
				unharmed(t, url, 1, "show", "a")
				unharmed(t, url, 0, "wait", "a")

				holder := start(t, url, append(under, "sleep", "600")...)

				eventually(t, "the lock is held", func() bool { return strings.Contains(run(t, url, "ls").stdout.String(), strategy) })
				unharmed(t, url, 1, append([]string{"run", "--no-wait"}, append(under[1:], "true")...)...)
				unharmed(t, url, 0, "show", "a")
				unharmed(t, url, 0, "doctor", "--strategy", strategy)
				unharmed(t, url, 0, "reap")
				unharmed(t, url, 0, "free", "--token", tokenOf(t, url, "a"), "--reason", "the test is over", "a")

				if holder.wait(); strings.Contains(holder.stderr.String(), overload.Message) {
					t.Errorf("run said:\n%s", holder.stderr.String())
				}
			}

			unharmed(t, url, 0, "migrate", "down", "--all")
		})
	}
}

// unharmed runs the command and fails the test if it called what was planted, or
// exits with another code.
func unharmed(t *testing.T, url string, code int, args ...string) {
	t.Helper()

	i := run(t, url, args...)
	i.want(code)

	// The doctor breaks lines.
	said := strings.Join(strings.Fields(i.stdout.String()+i.stderr.String()), " ")
	if strings.Contains(said, overload.Message) {
		t.Errorf("%q said:\n%s", args, said)
	}
}

// overloaded returns the URL of a database with the overloads of all that the
// library, the command, goose and the tables use, and nothing else.
func overloaded(t *testing.T) string {
	t.Helper()

	role, planted := "stranger_"+strings.ToLower(rand.Text()), false

	// When the database has gone, with all that the role owns: the server has not room
	// for the locks of all that one by one, in several databases at once.
	t.Cleanup(func() {
		if planted {
			executeOn(t, os.Getenv("SQLLOCK_TEST_POSTGRES"), "DROP ROLE "+role)
		}
	})

	admin := freshDatabase(t, "postgres")

	var sources []string

	for _, pattern := range []string{
		"internal/*/*.go", "*.go", "../../strategies/*/*.go", "../../strategies/internal/*/*.go", "../../databases/postgres/*.go",
		"../../migrations/postgres/*.sql",
	} {
		found, err := filepath.Glob(filepath.FromSlash(pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}

		sources = append(sources, slices.DeleteFunc(found, func(name string) bool { return strings.HasSuffix(name, "_test.go") })...)
	}

	names, err := overload.Read(sources...)
	if err != nil {
		t.Fatal(err)
	}

	names.Functions = append(names.Functions, "now", "max", "current_schema") // goose's
	names.Types = []string{`"char"`, "real", "name[]"}                        // the catalogs', which the doctor reads

	db := openDatabase(t, t.Context(), admin)
	defer db.Close()

	if err := names.Plant(t.Context(), db.SQL, role); err != nil {
		t.Fatal(err)
	}

	planted = true

	return admin
}
