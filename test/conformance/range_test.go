package conformance_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// looks are what reads of one name, or of those that begin alike.
var looks = map[string]func(context.Context, *sqllock.Locker) error{
	"Inspect": func(ctx context.Context, l *sqllock.Locker) error {
		_, err := l.Inspect(ctx, "one")

		return err
	},
	"Holders of a prefix": func(ctx context.Context, l *sqllock.Locker) error {
		_, err := l.Holders(ctx, sqllock.Filter{Prefix: "on"})

		return err
	},
	"Waiters of a name": func(ctx context.Context, l *sqllock.Locker) error {
		_, err := l.Waiters(ctx, sqllock.WaiterFilter{Name: "one"})

		return err
	},
	"Waiters of a prefix": func(ctx context.Context, l *sqllock.Locker) error {
		_, err := l.Waiters(ctx, sqllock.WaiterFilter{Prefix: "on"})

		return err
	},
}

// TestLooksReadARange: who asks for a name, or for those that begin alike, has the server read no others.
func TestLooksReadARange(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			pool := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server)))
			pool.SetMaxOpenConns(1) // what it has read is told of each session

			for _, fill := range []string{
				`INSERT INTO sqllock_locks (name, token) ` + numbers + ` SELECT CONCAT('other-', i), 1 FROM n`,
				`INSERT INTO sqllock_leases (name, owner, expires_at) ` + numbers + ` SELECT CONCAT('other-', i), 'x', 9000000000000000 FROM n`,
				`INSERT INTO sqllock_queue (process, id, name, ticket, expires_at) ` + numbers +
					` SELECT 'p', i, CONCAT('other-', i), i, 9000000000000000 FROM n`,
				`ANALYZE TABLE sqllock_locks, sqllock_leases, sqllock_queue`,
			} {
				if _, err := pool.ExecContext(t.Context(), fill); err != nil {
					t.Fatal(err)
				}
			}

			locker := lockerOn(t, cas.New(mysql.New(pool)))

			lock, err := locker.Acquire(t.Context(), "one")
			if err != nil {
				t.Fatal(err)
			}

			first := rowsRead(t, pool)
			asking := rowsRead(t, pool) - first

			for name, look := range looks {
				before := rowsRead(t, pool)

				if err := look(t.Context(), locker); err != nil {
					t.Errorf("%s = %v", name, err)
				}

				if n := rowsRead(t, pool) - before - asking; n > 300 {
					t.Errorf("%s read %d rows, want those of the name", name, n)
				}
			}

			if err := lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// numbers are from 1 to 900.
const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)`

// rowsRead is how many the session has read one after the other, rather than by a key. The question reads some, too.
func rowsRead(t *testing.T, pool *sql.DB) (n int) {
	t.Helper()

	rows, err := pool.QueryContext(t.Context(), `SHOW SESSION STATUS LIKE 'Handler_read%next'`)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var (
			name  string
			value int
		)

		if err := rows.Scan(&name, &value); err != nil {
			t.Fatal(err)
		}

		n += value
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	return n
}

// TestLooksSearch is TestLooksReadARange for SQLite, which tells its plan. It has no range of a prefix.
func TestLooksSearch(t *testing.T) {
	t.Parallel()

	db := sqlite.New(sqlitePool(t, sqliteFile(t)))
	seen := make(map[string]databases.Values)
	statements := make(map[string]databases.Statement)

	locker := lockerOn(t, cas.New(watched{db, func(s databases.Statement, v databases.Values) { statements[s.Name], seen[s.Name] = s, v }}))

	if _, err := locker.Acquire(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}

	clear(statements)

	for _, name := range []string{"Inspect", "Waiters of a name"} {
		if err := looks[name](t.Context(), locker); err != nil {
			t.Fatal(err)
		}
	}

	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	defer conn.Release()

	for name, s := range statements {
		s.Name, s.SQL = "", "EXPLAIN QUERY PLAN "+s.SQL

		_, err := conn.Run(t.Context(), s, seen[name], func(row databases.Row) error {
			var (
				id, parent, unused int64
				detail             string
			)

			err := row(&id, &parent, &unused, &detail)
			if strings.HasPrefix(detail, "SCAN l") || strings.HasPrefix(detail, "SCAN q") {
				t.Errorf("%s reads the whole table: %s", name, detail)
			}

			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
