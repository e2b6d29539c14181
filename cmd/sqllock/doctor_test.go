package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

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
			return in(t, "", []string{"XDG_STATE_HOME=" + state}, append([]string{"doctor"}, args...)...)
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

	eachDatabase(t, func(t *testing.T, _ context.Context, url string) {
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
			{"options", "-cidle_in_transaction_session_timeout=5s", "forupdate", 0, "note timeouts idle_in_transaction_session_timeout is 5s effect: it ends guarded"},
			{"options", "-cidle_in_transaction_session_timeout=0", "cas", 0, "warning timeouts idle_in_transaction_session_timeout is 0 effect: a process that stops"},
			{"options", "-cidle_session_timeout=5s", "cas", 0, "warning timeouts idle_session_timeout is 5s, and the heartbeat 10s"},
			{"options", "-cstatement_timeout=500", "cas", 0, "warning timeouts statement_timeout is 500ms"},
			{"options", "-cdefault_transaction_read_only=on", "cas", 1, "error writable transactions are read-only"},
			{"options", "-csynchronous_commit=off", "cas", 0, "warning durability synchronous_commit is off"},
		},
		"mysql": {
			{"wait_timeout", "28800", "cas", 0, "warning timeouts wait_timeout is 8h0m0s, and no other limit"},
			{"wait_timeout", "28800", "cas", 0, "until its connection ends fix: wait_timeout=600 in the URL"},
			{"wait_timeout", "600", "cas", 0, "ok timeouts none that is shorter"},
			{"wait_timeout", "5", "cas", 0, "warning timeouts wait_timeout is 5s, and the heartbeat 10s"},
			{"max_execution_time", "500", "cas", 0, "warning timeouts max_execution_time is 500ms"},
			{"transaction_read_only", "1", "cas", 1, "error writable transactions are read-only"},
		},
		"mariadb": {
			{"wait_timeout", "28800", "cas", 0, "warning timeouts wait_timeout is 8h0m0s, and no other limit"},
			{"wait_timeout", "28800", "cas", 0, "until its connection ends fix: idle_transaction_timeout=300 in the URL"},
			{"wait_timeout", "600", "cas", 0, "ok timeouts none that is shorter"},
			{"idle_transaction_timeout", "5", "cas", 0, "note timeouts idle_transaction_timeout is 5s effect: it ends guarded"},
			{"idle_transaction_timeout", "5", "forupdate", 1, "error timeouts idle_transaction_timeout is 5s, and the heartbeat 10s"},
			{"idle_transaction_timeout", "90", "forupdate", 0, "warning timeouts idle_transaction_timeout is 1m30s, and the lease 30s"},
			{"idle_readonly_transaction_timeout", "5", "forupdate", 1, "error timeouts idle_readonly_transaction_timeout is 5s"},
			{"idle_write_transaction_timeout", "5", "forupdate", 0, "note timeouts idle_write_transaction_timeout is 5s"},
			{"tx_read_only", "1", "cas", 1, "error writable transactions are read-only"},
			{"max_statement_time", "0.5", "cas", 0, "warning timeouts max_statement_time is 500ms"},
		},
	}

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := migratedOn(t, name)

			for _, c := range cases[name] {
				diagnosed(t, run(t, withParameter(t, url, c.key, c.value), "doctor", "--strategy", c.strategy), c.code, c.said)
			}
		})
	}
}

// TestDoctorBesideAStandby is connected as a standby is, that lags.
func TestDoctorBesideAStandby(t *testing.T) {
	t.Parallel()

	url := freshDatabase(t, "postgres")

	conn, err := pgconn.Connect(t.Context(), withParameter(t, url, "replication", "database"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())

	diagnosed(t, run(t, url, "doctor"), 1, "note replication standbys: 1, none of them synchronous", "fix: leave it so;")
}

// TestDoctorBesideOthersCharacters looks at a server while a session runs a statement with a character of four bytes.
func TestDoctorBesideOthersCharacters(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := migratedOn(t, name)
			db := openDatabase(t, t.Context(), url)

			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)

			sleep := "DO SLEEP(60) /* 🔒 */"
			if name == "postgres" {
				sleep = "SELECT pg_sleep(60) /* 🔒 */"
			}

			go func() {
				_, err := db.SQL.ExecContext(ctx, sleep)
				ended <- err
			}()

			asleep := "SELECT count(*) FROM " + map[string]string{
				"postgres": "pg_stat_activity WHERE state = 'active' AND datname = current_database() AND query LIKE 'SELECT pg_sleep%'",
				"mysql":    "performance_schema.processlist WHERE db = DATABASE() AND state = 'User sleep'",
				"mariadb":  "information_schema.processlist WHERE db = DATABASE() AND state = 'User sleep'",
			}[name]

			eventually(t, "the session sleeps", func() (is bool) {
				var count int
				if err := db.SQL.QueryRowContext(t.Context(), asleep).Scan(&count); err != nil {
					t.Fatal(err)
				}

				return count > 0
			})

			diagnosed(t, run(t, url, "doctor"), 0, "ok replication")

			cancel()

			if err := <-ended; err == nil {
				t.Error("the session slept no longer while the doctor looked")
			}
		})
	}
}

// TestDoctorBehindProxy has the doctor look through proxies that pool.
func TestDoctorBehindProxy(t *testing.T) {
	t.Parallel()

	direct := migratedOn(t, "postgres")
	diagnosed(t, run(t, direct, "doctor"), 0, "ok pooler each connection has a server session of its own")

	const (
		pools      = " pooler a proxy between here and the server pools transactions"
		statements = "programs with this URL prepare statements"
	)

	for _, c := range []struct {
		name    string
		servers int
		byTurns bool
	}{{"one server session", 1, false}, {"the latest first", 4, false}, {"by turns of two", 2, true}, {"by turns of three", 3, true}, {"by turns of four", 4, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			proxied := pooling(t, direct, c.servers, c.byTurns)
			diagnosed(t, run(t, proxied, "doctor"), 0, "note"+pools, statements)

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

// TestDoctorSeesColumnsOfOthers that an INSERT would have to give a value.
func TestDoctorSeesColumnsOfOthers(t *testing.T) {
	t.Parallel()

	eachDatabase(t, func(t *testing.T, _ context.Context, url string) {
		t.Helper()

		run(t, url, "migrate", "up").want(0)
		executeOn(t, url, "ALTER TABLE sqllock_locks ADD COLUMN mine INTEGER NOT NULL DEFAULT 1")
		executeOn(t, url, "ALTER TABLE sqllock_locks ADD COLUMN yours INTEGER")
		diagnosed(t, run(t, url, "doctor", "--strategy", "insert"), 0, "ok tables")

		// SQLite adds no such column to a table that is there.
		executeOn(t, url, "DROP TABLE sqllock_inserts")

		text := map[string]string{"postgres": `text COLLATE "C"`, "mysql": "VARBINARY", "sqlite": "TEXT"}[strings.SplitN(url, ":", 2)[0]]
		name, owner := text, strings.TrimSuffix(text, ` COLLATE "C"`)

		if text == "VARBINARY" {
			name, owner = "VARBINARY(255)", "VARBINARY(64)"
		}

		executeOn(t, url, "CREATE TABLE sqllock_inserts (name "+name+" NOT NULL PRIMARY KEY, owner "+owner+" NOT NULL, expires_at INTEGER NOT NULL)")

		diagnosed(t, run(t, url, "doctor", "--strategy", "insert"), 1,
			"error trial a lock that nobody has cannot be acquired")
		run(t, url, "run", "--name", "n", "--strategy", "insert", "--", "true").want(exitUnavailable)

		executeOn(t, url, "ALTER TABLE sqllock_inserts DROP COLUMN expires_at")
		run(t, url, "run", "--name", "n", "--strategy", "insert", "--", "true").want(0)

		if strings.Contains(diagnosis(run(t, url, "doctor", "--strategy", "insert")), "error") {
			t.Error("the doctor still tells of an error")
		}
	})
}

// TestSearchPathWithoutSchemas is that of a session that sees no table.
func TestSearchPathWithoutSchemas(t *testing.T) {
	t.Parallel()

	owner := migratedOn(t, "postgres")

	const said = "search_path names no schema that exists and that this user may use"

	nowhere := withParameter(t, owner, "search_path", "nope")
	diagnosed(t, run(t, nowhere, "doctor"), 1, "error search_path the "+said)
	run(t, nowhere, "migrate", "up").want(exitUnavailable, said)
	run(t, nowhere, "migrate", "status").want(exitUnavailable, said)
	run(t, nowhere, "migrate", "down").want(exitUnavailable, said)
}

// TestDoctorSeesASecondLink: whoever opens the file by its other name is not excluded.
func TestDoctorSeesASecondLink(t *testing.T) {
	t.Parallel()

	url := freshDatabase(t, "sqlite")
	file := strings.TrimPrefix(url, "sqlite:")
	run(t, url, "migrate", "up").want(0)
	diagnosed(t, run(t, url, "doctor"), 0, "ok server SQLite")

	if err := os.Link(file, file+".linked"); err != nil {
		t.Fatal(err)
	}

	diagnosed(t, run(t, url, "doctor"), 1, "error server the file "+file+" has 2 names (hard links)")
	run(t, url, "run", "--name", "a", "--", "true").want(exitUsage, "remove the other names")
}
