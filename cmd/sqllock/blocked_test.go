//go:build unix

package main

import (
	"context"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/testdatabases"
	"github.com/sqllock/sqllock/databases"
)

// TestBlockedByAGuard has a process stop in a guarded transaction. Its lease ends, and nobody gets the name: who looks for
// the reason is told.
func TestBlockedByAGuard(t *testing.T) {
	t.Parallel()
	testdatabases.Each(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()
		run(t, url, "migrate", "up").want(0)
		run(t, url, "run", "--name", "a", "--", "true").want(0)

		db := testdatabases.Open(t, ctx, url)
		defer db.Close()

		guard := ""

		switch db.Target.Dialect {
		case databases.Postgres:
			guard = "SELECT token FROM sqllock_locks WHERE name = 'a' FOR KEY SHARE"
		case databases.MySQL:
			guard = "SELECT token FROM sqllock_locks WHERE name = 'a' LOCK IN SHARE MODE"
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

		for _, args := range []string{"free a --token 1 --reason test", "free a --token 1 --reason test --force"} {
			run(t, url, strings.Fields(args)...).want(exitNotAcquired, `lock "a" is not held by anyone, but nobody gets it either`)
		}

		waiter := start(t, url, "run", "--name", "a", "--", "true")
		t.Cleanup(func() { _ = waiter.cmd.Process.Kill() })

		eventually(t, "the waiter is told", func() bool {
			return strings.Contains(waiter.stderr.String(), "an open transaction has its row locked")
		})

		show := run(t, url, "show", "a")
		show.want(exitNotHeld)

		if said := show.stdout.String(); !strings.Contains(said, "a transaction keeps the next holder out") {
			t.Errorf("show said %q, want that a transaction is in the way", said)
		}

		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}

		waiter.wait()
		waiter.want(0)
		run(t, url, "free", "a", "--token", "1", "--reason", "test").want(exitNotHeld)
	})
}
