//go:build unix

package main

import (
	"context"
	"testing"

	"github.com/sqllock/sqllock/databases"
)

// TestFreeOfASuccessor frees the lock of the holder whose token is given, and of nobody else.
func TestFreeOfASuccessor(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, _ context.Context, url string) {
		t.Helper()
		run(t, url, "migrate", "up").want(0)
		run(t, url, "run", "--name", "a", "--", "true").want(0)

		before := tokenOf(t, url, "a")
		hold(t, url, "--label", "the successor")
		token := tokenOf(t, url, "a")

		run(t, url, "free", "a", "--reason", "test").want(exitUsage,
			`say with --token N whom to take it from, and with --reason why: lock "a" is held by the successor (`, " with token "+token)
		run(t, url, "free", "a", "--reason", "test", "--token", "0").want(exitUsage, "--token 0 is not above 0")

		run(t, url, "free", "a", "--reason", "test", "--token", before).want(exitNotAcquired,
			`lock "a" is not freed: whoever had token `+before+` does not have it, and it is held by the successor (`, "with token "+token)
		run(t, url, "show", "a").want(0)

		run(t, url, "free", "a", "--reason", "test", "--token", token).want(0)
		run(t, url, "free", "a", "--reason", "test", "--token", token).want(exitNotHeld, "is not held by anyone")
		run(t, url, "free", "a", "--reason", "test").want(exitNotHeld, "is not held by anyone")
	})
}

// TestFreeBesideAGuard opens the transaction that a holder with a guard has
// open.
func TestFreeBesideAGuard(t *testing.T) {
	t.Parallel()

	for _, strategy := range []string{"cas", "insert"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
				t.Helper()
				run(t, url, "migrate", "up").want(0)
				hold(t, url, "--strategy", strategy)
				token := tokenOf(t, url, "a")

				db := openDatabase(t, ctx, url)
				defer db.Close()

				guard := "SELECT token FROM sqllock_locks WHERE name = 'a' FOR KEY SHARE"

				switch db.Target.Dialect {
				case databases.MySQL:
					guard = "SELECT token FROM sqllock_locks WHERE name = 'a' LOCK IN SHARE MODE"
				case databases.SQLite:
					guard = "UPDATE sqllock_locks SET token = token WHERE name = 'a'"
				case databases.Postgres, databases.TiDB:
				}

				tx, err := db.SQL.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback() }()

				if _, err := tx.ExecContext(ctx, guard); err != nil {
					t.Fatal(err)
				}

				if db.Target.Dialect == databases.SQLite {
					// The one writer keeps everybody out, a forced release too.
					run(t, url, "free", "a", "--token", token, "--reason", "test", "--force").want(exitNotAcquired, "a transaction of somebody else", "locked")
				} else {
					run(t, url, "free", "a", "--token", token, "--reason", "test").want(exitNotAcquired, "is guarded", "--force")
					run(t, url, "show", "a").want(0)
					run(t, url, "free", "a", "--token", token, "--reason", "test", "--force").want(0)
					run(t, url, "run", "--name", "a", "--strategy", strategy, "--no-wait", "true").want(exitUnavailable)
				}

				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}

				if db.Target.Dialect == databases.SQLite {
					run(t, url, "free", "a", "--token", token, "--reason", "test").want(0)
				}

				run(t, url, "run", "--name", "a", "--strategy", strategy, "--no-wait", "true").want(0)
			})
		})
	}
}
