//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/databases"
)

// hidden has a user look who may not see the session that has a row locked, and gives the privileges that are named then.
func hidden(t *testing.T, url, session string) {
	t.Helper()

	user, app := restrict(t, url)
	executeOn(t, url, "GRANT SELECT, INSERT, UPDATE, DELETE ON * TO "+user)

	said := diagnosis(run(t, app, "show", "a"))
	_, needs, found := strings.Cut(said, "by a session that this user may not see without ")

	if !found {
		t.Fatalf("show said %q, want that this user may not see the session", said)
	}

	needs, _, _ = strings.Cut(needs, " waiting ")
	for grant := range strings.SplitSeq(needs, " and ") {
		executeOn(t, url, grant+" TO "+user)
	}

	if said = diagnosis(run(t, app, "show", "a")); !strings.Contains(said, session) {
		t.Errorf("with that show said %q, want the session", said)
	}
}

// TestBlockedByAGuard has a process stop in a guarded transaction. Its lease ends, and nobody gets the name: who looks for
// the reason is told.
func TestBlockedByAGuard(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()
		run(t, url, "migrate", "up").want(0)
		run(t, url, "run", "--name", "a", "--", "true").want(0)

		db := openDatabase(t, ctx, url)
		defer db.Close()

		var guard, self, ends string

		switch db.Target.Dialect {
		case databases.Postgres:
			guard, self = "SELECT token FROM sqllock_locks WHERE name = 'a' FOR KEY SHARE", "SELECT pg_backend_pid()"
			ends = "SELECT pg_terminate_backend(%d)"
		case databases.MySQL:
			guard, self = "SELECT token FROM sqllock_locks WHERE name = 'a' LOCK IN SHARE MODE", "SELECT CONNECTION_ID()"
			ends = "KILL %d"
		case databases.SQLite, databases.TiDB:
			t.Skip("SQLite has no row locks")
		}

		tx, err := db.SQL.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()

		if _, err := tx.ExecContext(ctx, guard); err != nil {
			t.Fatal(err)
		}

		var id int64
		if err := tx.QueryRowContext(ctx, self).Scan(&id); err != nil {
			t.Fatal(err)
		}

		session, end := fmt.Sprintf("by session %d of user ", id), fmt.Sprintf(ends, id)

		for _, args := range []string{"free a --token 1 --reason test", "free a --token 1 --reason test --force"} {
			run(t, url, strings.Fields(args)...).want(exitNotAcquired, `lock "a" is not held by anyone, but nobody gets it either`, session, end)
		}

		waiter := start(t, url, "run", "--name", "a", "--", "true")
		t.Cleanup(func() { _ = waiter.cmd.Process.Kill() })

		eventually(t, "the waiter is told", func() bool {
			return strings.Contains(waiter.stderr.String(), "an open transaction has its row locked")
		})

		waited := run(t, url, "wait", "a")
		waited.want(0)

		if said := waited.stderr.String(); !strings.Contains(said, "a transaction keeps the next holder out") {
			t.Errorf("wait said %q, want that somebody has the row locked", said)
		}

		show := run(t, url, "show", "a")
		show.want(exitNotHeld)

		for line := range strings.Lines(show.stdout.String()) {
			if text.Width(strings.TrimRight(line, "\n")) > helpWidth {
				t.Errorf("show printed a line that is wider than %d columns: %s", helpWidth, line)
			}
		}

		if said := show.stdout.String(); !strings.Contains(said, "a transaction keeps the next holder out") ||
			!strings.Contains(said, session) || !strings.Contains(said, "\n          whose transaction is open for") || !strings.Contains(said, end) {
			t.Errorf("show said %q, want the session that has the row locked, since when, and what ends it", said)
		}

		if show = run(t, url, "show", "a", "--json"); !strings.Contains(show.stdout.String(), `"row_locked":"`+session) {
			t.Errorf("show --json said %q, want the session", show.stdout.String())
		}

		if db.Target.Dialect == databases.MySQL {
			hidden(t, url, session)
		}

		// MySQL and MariaDB answer who waits for whom from a copy, which they make anew only once nobody has read it for 0.1 s.
		shows := make([]*invocation, 3)
		for i := range shows {
			shows[i] = start(t, url, "show", "a")
		}

		for _, show := range shows {
			show.wait()

			if said := show.stdout.String(); !strings.Contains(said, session) {
				t.Errorf("one of several at a time said %q, want the session", said)
			}
		}

		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}

		waiter.wait()
		waiter.want(0)
		run(t, url, "free", "a", "--token", "1", "--reason", "test").want(exitNotHeld)
	})
}
