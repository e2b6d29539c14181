//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sqllock/sqllock/databases"
)

// TestBesideALockedRow frees a lock whose row a transaction of nobody's holder has
// locked.
func TestBesideALockedRow(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()
		run(t, url, "migrate", "up").want(0)
		hold(t, url)
		token := tokenOf(t, url, "a")

		db := openDatabase(t, ctx, url)
		defer db.Close()

		lock := "SELECT name FROM sqllock_locks WHERE name = 'a' FOR UPDATE"
		if db.Target.Dialect == databases.SQLite {
			lock = "UPDATE sqllock_locks SET token = token WHERE name = 'a'"
		}

		tx, err := db.SQL.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()

		if _, err := tx.ExecContext(ctx, lock); err != nil {
			t.Fatal(err)
		}

		const inTheWay = "a transaction of somebody else"

		switch db.Target.Dialect {
		case databases.Postgres:
			run(t, url, "free", "a", "--token", token, "--reason", "test").want(exitNotAcquired, "somebody else has its row locked", "--force")
			run(t, url, "free", "a", "--token", token, "--reason", "test", "--force").want(exitNotAcquired, `lock "a" cannot be freed: `+inTheWay)
			run(t, url, "show", "a").want(0)
		case databases.MySQL, databases.TiDB:
			run(t, url, "free", "a", "--token", token, "--reason", "test").want(exitNotAcquired, "somebody else has its row locked", "--force")
			// The lease is in another table.
			run(t, url, "free", "a", "--token", token, "--reason", "test", "--force").want(0)
			run(t, url, "show", "a").want(exitNotHeld)
		case databases.SQLite:
			run(t, url, "free", "a", "--token", token, "--reason", "test").want(exitNotAcquired, inTheWay)
			run(t, url, "free", "a", "--token", token, "--reason", "test", "--force").want(exitNotAcquired, inTheWay)
		}
	})
}

// TestBesideLockedTables has what acts on locks of others give up, and say why. That takes long: all databases wait at the same time.
func TestBesideLockedTables(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()

	var all []lockedTables
	for _, name := range someDatabases(t) {
		all = append(all, lockTables(t, ctx, freshDatabase(t, name)))
	}

	var waiting sync.WaitGroup
	for _, locked := range all {
		waiting.Go(func() { locked.wantGivenUp(t) })
	}

	waiting.Wait()

	for _, locked := range all {
		locked.unlock()
		run(t, locked.url, "migrate", "down").want(0)
		run(t, locked.url, "migrate", "up").want(0)
		run(t, locked.url, "doctor").want(0)
	}
}

// lockedTables is a database in which somebody has locked sqllock's tables.
type lockedTables struct {
	url     string
	dialect databases.Dialect
	unlock  func()
}

// wantGivenUp runs what waits for the tables.
func (l lockedTables) wantGivenUp(t *testing.T) {
	t.Helper()

	var reaper sync.WaitGroup
	defer reaper.Wait()

	// MySQL commits each step of a rollback, so that the others see some of it.
	for _, together := range [][]string{{"free a --token 1 --reason test --force", "reap", "doctor"}, {"migrate down", "migrate down --force"}} {
		var all sync.WaitGroup

		for _, args := range together {
			// A reader is in nobody's way on SQLite, and nobody holds the lock.
			if l.dialect == databases.SQLite && strings.HasPrefix(args, "free") {
				continue
			}

			group := &all
			if args == "reap" && l.dialect == databases.Postgres {
				group = &reaper // it waits longest, and sees nothing of a rollback, which is one transaction
			}

			group.Go(func() { run(t, l.url, strings.Fields(args)...).want(exitNotAcquired, "a transaction of somebody else") })
		}

		all.Wait()
	}
}

func lockTables(t *testing.T, ctx context.Context, url string) lockedTables {
	t.Helper()
	run(t, url, "migrate", "up").want(0)
	run(t, url, "run", "--name", "a", "--", "true").want(0)

	db := openDatabase(t, ctx, url)
	t.Cleanup(func() { _ = db.Close() })

	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = conn.Close() })

	statements := map[databases.Dialect][2]string{
		databases.Postgres: {"BEGIN; LOCK TABLE sqllock_locks", "ROLLBACK"},
		databases.MySQL:    {"LOCK TABLES sqllock_locks WRITE", "UNLOCK TABLES"},
		databases.SQLite:   {"BEGIN EXCLUSIVE", "ROLLBACK"},
	}[db.Target.Dialect]

	// SQLite keeps writers out, and a reaper without work is none.
	if db.Target.Dialect == databases.SQLite {
		executeOn(t, url, "UPDATE sqllock_locks SET owner = 'x', expires_at = 1")
	}

	if _, err := conn.ExecContext(ctx, statements[0]); err != nil {
		t.Fatal(err)
	}

	return lockedTables{url, db.Target.Dialect, func() {
		if _, err := conn.ExecContext(ctx, statements[1]); err != nil {
			t.Fatal(err)
		}
	}}
}

// TestMigrateBesideAnother that hangs, where migrations take turns. Nobody waits for it in silence.
func TestMigrateBesideAnother(t *testing.T) {
	t.Parallel()

	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		db := openDatabase(t, ctx, url)
		defer db.Close()

		if db.Target.Dialect != databases.MySQL {
			return // migrations are transactions
		}

		run(t, url, "migrate", "up").want(0)

		conn, err := db.SQL.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()

		var got, session int64

		err = conn.QueryRowContext(ctx,
			"SELECT GET_LOCK(CONCAT('sqllock-migrate-', LEFT(SHA2(DATABASE(), 256), 40)), 0), CONNECTION_ID()").Scan(&got, &session)
		if err != nil || got != 1 {
			t.Fatal(got, err)
		}

		var all sync.WaitGroup

		for _, verb := range []string{"up", "down"} {
			all.Go(func() {
				run(t, url, "migrate", verb).want(exitNotAcquired, "another migration", fmt.Sprintf("KILL %d", session))
			})
		}

		all.Wait()
	})
}
