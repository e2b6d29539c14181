package bench_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
	"github.com/sqllock/sqllock/test/schema"
)

// target is a database and a way to reach it. open makes a database of the
// benchmark's own, with sqllock's tables, and a pool to it; with spy the pool
// connects through a proxy.
type target struct {
	name string
	open func(b *testing.B, spy bool) pool
}

var targets = []target{
	{"postgres", openPostgres},
	{"postgres-stdlib", openPostgresStd},
	{"mysql", openMySQL("mysql", false)},
	{"mysql-interpolate", openMySQL("mysql", true)},
	{"mariadb", openMySQL("mariadb", false)},
	{"mariadb-interpolate", openMySQL("mariadb", true)},
	{"sqlite", openSQLite},
}

// pool is an application's pool.
type pool struct {
	db databases.DB
	// update runs one statement, which commits by itself, on a connection that
	// is checked out for it: what a program does that has no lock library.
	update func(ctx context.Context, query string, args ...any) error
	// number asks for one number.
	number func(ctx context.Context, query string) (int64, error)
	// proxy is what the pool connects through; nil if it does not.
	proxy *proxy
	// idle is how many connections nobody uses.
	idle func() int
	// another opens a pool to the same database, as another process would.
	another func(b *testing.B, size int, spy bool) pool
}

const poolSize = 12

// kinds are the strategies by name. SQLite carries the first two.
var kinds = []struct {
	name string
	make func(databases.DB) strategies.Strategy
}{
	{"cas", func(db databases.DB) strategies.Strategy { return cas.New(db) }},
	{"insert", func(db databases.DB) strategies.Strategy { return insert.New(db) }},
	{"forupdate", func(db databases.DB) strategies.Strategy { return forupdate.New(db) }},
	{"advisory", func(db databases.DB) strategies.Strategy { return advisory.New(db) }},
}

// each runs a benchmark for every target and strategy that go together.
func each(b *testing.B, spy bool, f func(b *testing.B, p pool, strategy func(databases.DB) strategies.Strategy)) {
	b.Helper()

	for _, t := range targets {
		b.Run(t.name, func(b *testing.B) {
			p := t.open(b, spy)

			for i, strategy := range kinds {
				if p.db.Dialect() == databases.SQLite && i > 1 {
					break
				}

				b.Run(strategy.name, func(b *testing.B) { f(b, p, strategy.make) })
			}
		})
	}
}

// newLocker returns a locker that is closed with the benchmark.
func newLocker(b *testing.B, strategy strategies.Strategy, options ...sqllock.LockerOption) *sqllock.Locker {
	b.Helper()

	locker, err := sqllock.New(strategy, options...)
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() {
		if err := locker.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})

	return locker
}

// dsn returns the DSN of a server. A database that SQLLOCK_TEST_DATABASES
// leaves out is skipped; one that it does not and that has no server is a
// failure.
func dsn(b *testing.B, name string) string {
	b.Helper()

	wanted := os.Getenv("SQLLOCK_TEST_DATABASES")
	if wanted == "" {
		wanted = "postgres,mysql,mariadb,sqlite"
	}

	if !slices.Contains(strings.Split(wanted, ","), name) {
		b.Skipf("SQLLOCK_TEST_DATABASES=%s leaves %s out", wanted, name)
	}

	if name == "sqlite" {
		return ""
	}

	variable := "SQLLOCK_TEST_" + strings.ToUpper(name)

	value := os.Getenv(variable)
	if value == "" {
		b.Fatalf("no server for %s: run make bench, or set %s to its DSN, or leave it out of SQLLOCK_TEST_DATABASES",
			name, variable)
	}

	return value
}

// unique numbers what this process makes.
var unique atomic.Int64

func uniqueName() string {
	return fmt.Sprintf("sqllock_bench_%d_%d_%d", os.Getpid(), time.Now().Unix()%100000, unique.Add(1))
}

func migrate(b *testing.B, db *sql.DB, dialect databases.Dialect) {
	b.Helper()

	if err := schema.Up(b.Context(), db, dialect); err != nil {
		b.Fatal(err)
	}
}

// exec runs a statement of the set-up, also after the benchmark has ended.
func exec(b *testing.B, db *sql.DB, query string) {
	b.Helper()

	if _, err := db.ExecContext(context.WithoutCancel(b.Context()), query); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
}

// stdPool is a pool of database/sql.
func stdPool(db *sql.DB, on databases.DB, through *proxy) pool {
	return pool{
		db:    on,
		proxy: through,
		idle:  func() int { return db.Stats().Idle },
		update: func(ctx context.Context, query string, args ...any) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}

			_, err = conn.ExecContext(ctx, query, args...)
			if closeErr := conn.Close(); err == nil {
				err = closeErr
			}

			return err
		},
		number: func(ctx context.Context, query string) (n int64, err error) {
			err = db.QueryRowContext(ctx, query).Scan(&n)

			return n, err
		},
	}
}
