package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/testdatabases"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
)

// diagnosis is what the doctor says, each text in one line.
func diagnosis(i *invocation) string { return strings.Join(strings.Fields(i.stdout.String()), " ") }

// diagnosed fails the test unless the doctor exited with the code and said all
// of it.
func diagnosed(tb testing.TB, i *invocation, code int, said ...string) {
	tb.Helper()
	i.want(code)

	for _, want := range said {
		if !strings.Contains(diagnosis(i), want) {
			tb.Errorf("%q said:\n%s\nwant %q in it", i.cmd.Args[1:], i.stdout.String(), want)
		}
	}
}

// TestDoctorChangesNothing begins where nothing is there.
func TestDoctorChangesNothing(t *testing.T) {
	t.Parallel()

	t.Run("no database named", func(t *testing.T) {
		t.Parallel()

		state := filepath.Join(t.TempDir(), "state")
		doctor := func(args ...string) *invocation {
			i := prepare(t, "", append([]string{"doctor"}, args...)...)
			i.cmd.Env = append(i.cmd.Env, "XDG_STATE_HOME="+state)
			i.start()
			i.wait()

			return i
		}

		diagnosed(t, doctor(), 0, "note server no database is named", "will be made by the first command", "ok strategy cas works")
		diagnosed(t, doctor("--strategy", "forupdate"), 1, "error strategy strategy forupdate needs row locks")

		if _, err := os.Stat(state); !os.IsNotExist(err) {
			t.Errorf("the doctor made %s (%v)", state, err)
		}

		if err := os.MkdirAll(filepath.Join(state, "sqllock"), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(state, "sqllock", "locks.db"), nil, 0o600); err != nil {
			t.Fatal(err)
		}

		diagnosed(t, doctor(), 1, "note server no database is named: SQLite", "error schema sqllock's tables are missing")
	})

	t.Run("journal mode", func(t *testing.T) {
		t.Parallel()

		file := filepath.Join(t.TempDir(), "locks.db")
		db := sqlite(t, "sqlite:"+file)

		if _, err := db.ExecContext(t.Context(), "CREATE TABLE other (a)"); err != nil {
			t.Fatal(err)
		}

		diagnosed(t, run(t, "sqlite:"+file, "doctor"), 1, "note journal the journal mode is delete", "run: sqllock migrate up")

		var mode string
		if err := db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "delete" {
			t.Errorf("after the doctor the journal mode is %q (%v), want delete", mode, err)
		}
	})
}

// TestDoctorFits makes sure that what it prints is no wider than a terminal.
func TestDoctorFits(t *testing.T) {
	t.Parallel()

	testdatabases.Each(t, func(t *testing.T, _ context.Context, url string) {
		t.Helper()

		i := run(t, url, "migrate", "up")
		i.want(0)

		i = run(t, url, "doctor", "--strategy", "forupdate", "--holders", "1000000", "--lease", "30h")

		for line := range strings.Lines(i.stdout.String()) {
			if text.Width(strings.TrimRight(line, "\n")) > helpWidth {
				t.Errorf("the doctor printed a line that is wider than %d columns: %s", helpWidth, line)
			}
		}
	})
}

// TestDoctorLimits sets what a server may set for all.
func TestDoctorLimits(t *testing.T) {
	t.Parallel()

	cases := map[string][]struct {
		key, value, strategy string
		code                 int
		said                 string
	}{
		"postgres": {
			{"options", "-cidle_in_transaction_session_timeout=5s", "forupdate", 0, "note timeouts idle_in_transaction_session_timeout is 5s hurts: it ends guarded"},
			{"options", "-cidle_session_timeout=5s", "cas", 0, "warning timeouts idle_session_timeout is 5s, and the heartbeat 10s"},
			{"options", "-cstatement_timeout=500", "cas", 0, "warning timeouts statement_timeout is 500ms"},
			{"options", "-cdefault_transaction_read_only=on", "cas", 1, "error writable transactions are read-only"},
			{"options", "-csynchronous_commit=off", "cas", 0, "warning durability synchronous_commit is off"},
		},
		"mysql": {
			{"wait_timeout", "5", "cas", 0, "warning timeouts wait_timeout is 5s, and the heartbeat 10s"},
			{"max_execution_time", "500", "cas", 0, "warning timeouts max_execution_time is 500ms"},
			{"interpolateParams", "false", "cas", 0, "note driver interpolateParams is off"},
		},
		"mariadb": {
			{"idle_transaction_timeout", "5", "cas", 0, "note timeouts idle_transaction_timeout is 5s hurts: it ends guarded"},
			{"idle_transaction_timeout", "5", "forupdate", 1, "error timeouts idle_transaction_timeout is 5s, and the heartbeat 10s"},
			{"idle_transaction_timeout", "90", "forupdate", 0, "warning timeouts idle_transaction_timeout is 1m30s, and the lease 30s"},
			{"idle_readonly_transaction_timeout", "5", "forupdate", 1, "error timeouts idle_readonly_transaction_timeout is 5s"},
			{"idle_write_transaction_timeout", "5", "forupdate", 0, "note timeouts idle_write_transaction_timeout is 5s"},
			{"max_statement_time", "0.5", "cas", 0, "warning timeouts max_statement_time is 500ms"},
		},
	}

	for _, name := range testdatabases.Servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := testdatabases.Fresh(t, name)
			run(t, url, "migrate", "up").want(0)

			for _, c := range cases[name] {
				diagnosed(t, run(t, withParameter(t, url, c.key, c.value), "doctor", "--strategy", c.strategy), c.code, c.said)
			}
		})
	}
}

// TestDoctorBehindProxy has the doctor look through proxies that pool.
func TestDoctorBehindProxy(t *testing.T) {
	t.Parallel()

	if !slices.Contains(testdatabases.Names(), "postgres") {
		return
	}

	direct := testdatabases.Fresh(t, "postgres")
	run(t, direct, "migrate", "up").want(0)
	diagnosed(t, run(t, direct, "doctor"), 0, "ok pooler each connection has a server session of its own")

	const (
		pools      = " pooler a proxy between here and the server pools transactions"
		statements = "error pooler prepared statements do not pass the proxy"
	)

	for _, c := range []struct {
		name    string
		servers int
		byTurns bool
	}{{"one server session", 1, false}, {"the latest first", 4, false}, {"by turns of two", 2, true}, {"by turns of three", 3, true}, {"by turns of four", 4, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			proxied := pooling(t, direct, c.servers, c.byTurns)
			diagnosed(t, run(t, proxied, "doctor"), 1, "note"+pools, statements)

			proxied = withParameter(t, proxied, "default_query_exec_mode", "exec")

			for strategy, want := range map[string]struct {
				code int
				said string
			}{"cas": {0, "note"}, "insert": {0, "note"}, "forupdate": {0, "warning"}, "advisory": {1, "error"}} {
				i := run(t, proxied, "doctor", "--strategy", strategy)
				diagnosed(t, i, want.code, want.said+pools)

				if strings.Contains(diagnosis(i), statements) {
					t.Errorf("the doctor tells of prepared statements, which the URL does not ask for:\n%s", i.stdout.String())
				}
			}
		})
	}
}
