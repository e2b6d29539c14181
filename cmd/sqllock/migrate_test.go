package main

import (
	"context"
	"crypto/rand"
	neturl "net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/forupdate"
)

func TestUpDownUp(t *testing.T) {
	t.Parallel()

	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		db := openDatabase(t, ctx, url)
		defer db.Close()

		total := pending(t, ctx, url, 0)

		for _, step := range []struct {
			what string
			do   func() ([]migrate.Step, error)
			want int
		}{
			{"up", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, total},
			{"up again", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, 0},
			{"down", func() ([]migrate.Step, error) { return migrate.Down(ctx, db, false) }, 1},
			{"up after down", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, 1},
			{"down all", func() ([]migrate.Step, error) { return migrate.Down(ctx, db, true) }, total},
			{"down all again", func() ([]migrate.Step, error) { return migrate.Down(ctx, db, true) }, 0},
			{"down with nothing left", func() ([]migrate.Step, error) { return migrate.Down(ctx, db, false) }, 0},
			{"up once more", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, total},
		} {
			steps, err := step.do()
			if err != nil || len(steps) != step.want {
				t.Fatalf("%s = %d steps, %v, want %d", step.what, len(steps), err, step.want)
			}
		}

		if got := pending(t, ctx, url, total); got != 0 {
			t.Errorf("%d migrations are pending at the end, want 0", got)
		}

		executeOn(t, url, "DELETE FROM sqllock_locks")
	})
}

// pending counts them, and checks how many are applied.
func pending(t *testing.T, ctx context.Context, url string, applied int) int {
	t.Helper()

	db := openDatabase(t, ctx, url)
	defer db.Close()

	statuses, err := migrate.Statuses(ctx, db)
	if err != nil {
		t.Fatal(err)
	}

	n := 0

	for _, s := range statuses {
		if !s.Applied {
			n++
		} else if s.At.IsZero() {
			t.Errorf("%s is applied at no time", s.Name)
		}
	}

	if len(statuses)-n != applied {
		t.Errorf("%d migrations are applied, want %d", len(statuses)-n, applied)
	}

	return n
}

// TestStatusesWritesNothing because a look must not make tables.
func TestStatusesWritesNothing(t *testing.T) {
	t.Parallel()

	url := freshDatabase(t, "sqlite")
	pending(t, t.Context(), url, 0)

	db := openDatabase(t, t.Context(), url)
	defer db.Close()

	var n int
	if err := db.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables are there after a look (%v), want 0", n, err)
	}
}

// TestUpAtOnce is a deployment in which every instance migrates.
func TestUpAtOnce(t *testing.T) {
	t.Parallel()

	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		const instances = 4

		var (
			group   sync.WaitGroup
			mu      sync.Mutex
			applied int
		)

		for range instances {
			db := openDatabase(t, ctx, url)
			defer db.Close()

			group.Go(func() {
				steps, err := migrate.Up(ctx, db)
				if err != nil {
					t.Errorf("Up beside others: %v", err)
				}

				mu.Lock()
				defer mu.Unlock()

				applied += len(steps)
			})
		}

		group.Wait()

		if left := pending(t, ctx, url, applied); left != 0 {
			t.Errorf("%d migrations are pending after all, want 0", left)
		}
	})
}

func TestPrint(t *testing.T) {
	t.Parallel()

	for _, dialect := range []string{"postgres", "mysql", "sqlite"} {
		var up, down strings.Builder

		if err := migrate.Print(&up, dialect, false); err != nil {
			t.Fatal(err)
		}

		if err := migrate.Print(&down, dialect, true); err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(up.String(), "CREATE TABLE sqllock_locks") || strings.Contains(up.String(), "DROP") ||
			strings.Contains(up.String(), "+goose") {
			t.Errorf("Print(%s) = %s", dialect, up.String())
		}

		if !strings.Contains(down.String(), "DROP TABLE IF EXISTS sqllock_locks") || strings.Contains(down.String(), "CREATE") {
			t.Errorf("Print(%s, down) = %s", dialect, down.String())
		}
	}

	if err := migrate.Print(&strings.Builder{}, "oracle", false); err == nil {
		t.Error("Print(oracle) = nil, want an error")
	}
}

// TestUpBesideTablesOfOthers: tables that another tool made from what "sqllock
// migrate print" prints are not made again, and whoever tries is told what to do;
// also after an older version of this command tried, and left its version table.
// MySQL's may be what a process made that was killed before it noted their version.
func TestUpBesideTablesOfOthers(t *testing.T) {
	t.Parallel()

	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		db := openDatabase(t, ctx, url)
		defer db.Close()

		if _, err := migrate.Up(ctx, db); err != nil {
			t.Fatal(err)
		}

		for _, statement := range []string{
			"DELETE FROM " + migrations.TableName + " WHERE version_id > 0", "DROP TABLE " + migrations.TableName,
		} {
			executeOn(t, url, statement)

			steps, err := migrate.Up(ctx, db)

			if db.Target.Dialect == databases.MySQL {
				if len(steps) != 1 || err != nil || pending(t, ctx, url, 1) != 0 {
					t.Errorf("Up() after %s = %d steps, %v, want one", statement, len(steps), err)
				}

				continue
			}

			if len(steps) != 0 || err == nil || !strings.Contains(err.Error(), `sqllock migrate print`) {
				t.Errorf("Up() after %s = %d steps, %v, want what to do", statement, len(steps), err)
			}
		}

		if statuses, err := migrate.Statuses(ctx, db); err != nil || statuses[0].Applied != (db.Target.Dialect == databases.MySQL) {
			t.Errorf("Statuses() = %v, %v", statuses, err)
		}
	})
}

// TestBesideForeignTable: somebody's table that is called like one of sqllock's stays, whatever is asked, and is named.
func TestBesideForeignTable(t *testing.T) {
	t.Parallel()

	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		db := openDatabase(t, ctx, url)
		defer db.Close()

		executeOn(t, url, "CREATE TABLE sqllock_queue (job INTEGER)")

		for range 2 {
			if steps, err := migrate.Up(ctx, db); len(steps) != 0 || err == nil || !strings.Contains(err.Error(), "sqllock_queue is there") {
				t.Errorf("Up() = %d steps, %v, want what is in the way", len(steps), err)
			}

			steps, err := migrate.Down(ctx, db, true)
			if len(steps) != 0 || err != nil != (db.Target.Dialect == databases.MySQL) {
				t.Errorf("DownAll() = %d steps, %v, want none", len(steps), err)
			}
		}

		look, err := migrate.Look(ctx, db, db.SQL)
		if err != nil || len(look.Altered) != 1 || len(look.There) != 1 || look.There[0].Name != "sqllock_queue" {
			t.Errorf("Look() = %+v, %v, want that only sqllock_queue is there", look, err)
		}

		executeOn(t, url, "DROP TABLE sqllock_queue")

		if steps, err := migrate.Up(ctx, db); len(steps) != 1 || err != nil {
			t.Errorf("Up() when it has gone = %d steps, %v, want one", len(steps), err)
		}
	})
}

// TestUpWithoutPrivileges: it says what is missing, each time, and goes on when it has been granted. It needs no more
// than the documentation says.
func TestUpWithoutPrivileges(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		if name == "postgres" {
			continue // a migration is one transaction
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ctx := t.Context()
			owner := freshDatabase(t, name)

			u, err := neturl.Parse(owner)
			if err != nil {
				t.Fatal(err)
			}

			user := "migrates_" + strings.ToLower(rand.Text()[:10])
			u.User = neturl.UserPassword(user, "restricted")

			executeOn(t, owner, "CREATE USER "+user+" IDENTIFIED BY 'restricted'")
			t.Cleanup(func() { executeOn(t, owner, "DROP USER "+user) })
			executeOn(t, owner, "GRANT CREATE, SELECT, INSERT ON * TO "+user)

			for range 2 {
				db := openDatabase(t, ctx, u.String())
				defer db.Close()

				if steps, err := migrate.Up(ctx, db); len(steps) != 0 || err == nil || !strings.Contains(err.Error(), "CREATE VIEW command denied") {
					t.Errorf("Up() = %d steps, %v, want what is denied", len(steps), err)
				}
			}

			executeOn(t, owner, "GRANT CREATE VIEW ON * TO "+user)

			db := openDatabase(t, ctx, u.String())
			defer db.Close()

			if steps, err := migrate.Up(ctx, db); len(steps) != 1 || err != nil {
				t.Errorf("Up() when it was granted = %d steps, %v, want one", len(steps), err)
			}
		})
	}
}

// TestDownBesideALock: what the URL says bounds the wait for a transaction that has a
// row of the tables locked, and when that has ended the rest is done.
func TestDownBesideALock(t *testing.T) {
	t.Parallel()

	for name, limit := range map[string]string{
		"postgres": "lock_timeout=500", "mysql": "lock_wait_timeout=1", "mariadb": "lock_wait_timeout=1",
	} {
		if !slices.Contains(serverNames(), name) {
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			url := freshDatabase(t, name)
			if strings.Contains(url, "?") {
				limit = "&" + limit
			} else {
				limit = "?" + limit
			}

			db := openDatabase(t, ctx, url+limit)
			defer db.Close()

			if _, err := migrate.Up(ctx, db); err != nil {
				t.Fatal(err)
			}

			locker, err := sqllock.New(forupdate.New(db.Locks))
			if err != nil {
				t.Fatal(err)
			}

			defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }()

			lock, err := locker.TryAcquire(ctx, "held")
			if err != nil {
				t.Fatal(err)
			}

			steps, err := migrate.Down(ctx, db, true)
			if len(steps) != 0 || err == nil || ctx.Err() != nil {
				t.Errorf("DownAll() beside a lock = %d steps, %v, want the server's error", len(steps), err)
			}

			if err := lock.Release(ctx); err != nil {
				t.Errorf("Release() after that = %v, want nil", err)
			}

			if steps, err := migrate.Down(ctx, db, true); len(steps) == 0 || err != nil {
				t.Errorf("DownAll() after the release = %d steps, %v, want all", len(steps), err)
			}
		})
	}
}

// TestUpBesideDown: what one process sees of tables that another removes is no fault of theirs.
func TestUpBesideDown(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		var all sync.WaitGroup
		defer all.Wait()

		over := make(chan struct{})

		all.Go(func() {
			db := openDatabase(t, ctx, url)
			defer db.Close()
			defer close(over)

			for range 10 {
				if _, err := migrate.Up(ctx, db); err != nil {
					t.Errorf("Up() = %v", err)
				}

				if _, err := migrate.Down(ctx, db, true); err != nil {
					t.Errorf("DownAll() = %v", err)
				}
			}
		})

		for range 2 {
			all.Go(func() {
				db := openDatabase(t, ctx, url)
				defer db.Close()

				for {
					select {
					case <-over:
						return
					default:
					}

					if _, err := migrate.Up(ctx, db); err != nil {
						t.Errorf("Up() beside another's DownAll() = %v", err)
					}
				}
			})
		}
	})
}
