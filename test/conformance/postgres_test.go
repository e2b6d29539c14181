package conformance_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// Driver modes: how an application may have set up its pool. The first runs all cases.
var postgresModes = []struct {
	name  string
	plain bool
	open  func(t *testing.T, config *pgx.ConnConfig) databases.DB
}{
	{"pgxpool", false, func(t *testing.T, c *pgx.ConnConfig) databases.DB {
		return pgxPool(t, c, pgx.QueryExecModeCacheStatement)
	}},
	{"plain", true, func(t *testing.T, c *pgx.ConnConfig) databases.DB {
		return pgxPool(t, c, pgx.QueryExecModeCacheStatement)
	}},
	{"pgxpool-exec", false, func(t *testing.T, c *pgx.ConnConfig) databases.DB { return pgxPool(t, c, pgx.QueryExecModeExec) }},
	{"pgxpool-simple", false, func(t *testing.T, c *pgx.ConnConfig) databases.DB {
		return pgxPool(t, c, pgx.QueryExecModeSimpleProtocol)
	}},
	{"stdlib", false, func(t *testing.T, c *pgx.ConnConfig) databases.DB { return postgres.NewStd(stdPool(t, c)) }},
	{"libpq", false, func(t *testing.T, c *pgx.ConnConfig) databases.DB {
		db, err := sql.Open("postgres", libpqString(c))
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(poolSize)

		return postgres.NewStd(db)
	}},
}

const poolSize = 12

func TestPostgres(t *testing.T) {
	t.Parallel()

	config, err := pgx.ParseConfig(dsn(t, "postgres"))
	if err != nil {
		t.Fatal(err)
	}

	for m, mode := range postgresModes {
		for n, strategy := range suited(mode.plain) {
			t.Run(mode.name+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				config := postgresDatabase(t, config)
				beside := stdPool(t, config)

				var seen sync.Map

				t.Cleanup(func() { resolved(t, config, stranger(), &seen) })

				sqllocktest.Run(t, sqllocktest.Harness{
					Only: part(m, n),
					New: func(t *testing.T) sqllocktest.Fixture {
						note := func(s databases.Statement, _ databases.Values) { seen.Store(s.SQL, s.Name) }
						db := watched{mode.open(t, config), note}
						faulty := sqllocktest.NewFaulty(db)
						other := sqllocktest.NewFaulty(watched{mode.open(t, config), note})
						wrap := func(tx *sql.Tx) databases.Tx { return db.Tx(postgres.StdTx(tx)) }

						ageReaders := func(t *testing.T, name string, d time.Duration) {
							t.Helper()
							exec(t, beside, "UPDATE sqllock_shares SET expires_at = expires_at - $2::float * interval '1 microsecond' WHERE name = $1",
								name, d.Microseconds())
						}

						return sqllocktest.Fixture{
							AgeReaders: ageReaders,
							Strategy:   strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Begin: func(t *testing.T, isolation string) sqllocktest.Transaction {
								return begin(t, beside, isolation, wrap, faulty)
							},
							Age: func(t *testing.T, name string, d time.Duration) {
								exec(t, beside, "UPDATE sqllock_locks SET expires_at = expires_at - $2::float * interval '1 microsecond' WHERE name = $1",
									name, d.Microseconds())
								ageReaders(t, name, d)

								if d >= idle {
									exec(t, beside, "UPDATE sqllock_locks SET token = token - $2 WHERE name = $1", name, d.Microseconds())
								}
							},
							EndSession: func(t *testing.T, name string) { endPostgresSession(t, beside, strategy.Name, name) },
							RemoveRow: func(t *testing.T, name string) {
								removeRows(t, beside, "$1", name, "sqllock_locks", "sqllock_inserts", "sqllock_mutexes", "sqllock_queue", "sqllock_shares")
							},
							LockRow: func(t *testing.T, name string) func() {
								return lockRows(t, beside, name, "SELECT 1 FROM sqllock_locks WHERE name = $1 FOR UPDATE")
							},
							LockNew:  lockNew(beside, strategy.Name, "$1"),
							LockLeft: lockLeft(beside, strategy.Name, "$1"),
							Rivals: func(t *testing.T) []strategies.Strategy {
								return rivals(t, strategy.Name, func() databases.DB { return mode.open(t, config) })
							},
						}
					},
					Isolations: []string{"read committed", "repeatable read", "serializable"},
					TryWithin:  tryWithin,
					Statements: statementNames(strategy.Name, databases.Postgres),
					Plain:      mode.plain,
					Rivals:     true,
				})
			})
		}
	}
}

// postgresDatabase makes a database with sqllock's tables, for one run of the
// suite. Another user has made there what he could: see plant.
func postgresDatabase(t *testing.T, server *pgx.ConnConfig) *pgx.ConnConfig {
	t.Helper()

	original.Do(func() { makeOriginal(t, server) })

	if !original.made {
		t.Fatal("there is no database to copy: another test says why")
	}

	name := uniqueName()
	maintenance := stdPool(t, server)
	exec(t, maintenance, "CREATE DATABASE "+name+" TEMPLATE "+original.name)
	t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })

	config := server.Copy()
	config.Database = name

	return config
}

// original is the database that others are copies of: what another user made takes
// seconds to make, and is the same in all of them. TestMain drops it.
var original struct {
	sync.Once

	server *pgx.ConnConfig
	name   string
	made   bool
}

func makeOriginal(t *testing.T, server *pgx.ConnConfig) {
	t.Helper()

	original.server, original.name = server, uniqueName()
	exec(t, stdPool(t, server), "CREATE DATABASE "+original.name)

	config := server.Copy()
	config.Database = original.name
	db := stdPool(t, config)

	plant(t, db, stranger())
	migrate(t, db, databases.Postgres)

	// No copy is made of a database to which somebody is connected.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	original.made = true
}

func TestMain(m *testing.M) {
	code := m.Run()

	if err := dropOriginal(); err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = max(code, 1)
	}

	os.Exit(code)
}

func dropOriginal() error {
	if original.name == "" {
		return nil
	}

	db := stdlib.OpenDB(*original.server)

	_, err := db.ExecContext(context.Background(), "DROP DATABASE IF EXISTS "+original.name+" WITH (FORCE)")
	if err == nil {
		_, err = db.ExecContext(context.Background(), "DROP ROLE IF EXISTS "+stranger())
	}

	return errors.Join(err, db.Close())
}

// stranger is the other user of the databases.
func stranger() string { return original.name + "_stranger" }

func stdPool(t *testing.T, config *pgx.ConnConfig) *sql.DB {
	t.Helper()

	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(poolSize)
	t.Cleanup(func() { _ = db.Close() })

	return db
}

func pgxPool(t *testing.T, config *pgx.ConnConfig, mode pgx.QueryExecMode) databases.DB {
	t.Helper()

	c, err := pgxpool.ParseConfig("")
	if err != nil {
		t.Fatal(err)
	}

	c.ConnConfig = config.Copy()
	c.ConnConfig.DefaultQueryExecMode = mode
	c.MaxConns = poolSize

	// An application may have a use of its own for notifications.
	if mode == pgx.QueryExecModeExec {
		c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	}

	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), c)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(pool.Close)

	return postgres.New(pool)
}

func libpqString(c *pgx.ConnConfig) string {
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }

	return fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s sslmode=disable",
		quote(c.Host), c.Port, quote(c.User), quote(c.Password), quote(c.Database))
}

// endPostgresSession ends the session that holds a lock, as an operator does.
func endPostgresSession(t *testing.T, db *sql.DB, strategy, name string) {
	t.Helper()

	var (
		query string
		arg   any = name
	)

	switch strategy {
	case "forupdate":
		query = `SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(a.pid, 5000)) FROM pg_stat_activity a
			JOIN sqllock_locks l ON a.application_name = 'sqllock:' || l.owner WHERE l.name = $1`
	case "advisory":
		var table string
		if err := db.QueryRowContext(t.Context(), `SELECT 'sqllock_locks'::regclass::oid::text`).Scan(&table); err != nil {
			t.Fatal(err)
		}

		sum := sha256.Sum256([]byte("sqllock\x00" + table + "\x00" + name))
		arg = int64(binary.BigEndian.Uint64(sum[:8]))
		query = `SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(pid, 5000)) FROM pg_locks
			WHERE locktype = 'advisory' AND granted AND objsubid = 1
			  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND (classid::bigint << 32) | objid::bigint = $1::bigint`
	}

	var ended int
	if err := db.QueryRowContext(t.Context(), query, arg).Scan(&ended); err != nil {
		t.Fatal(err)
	}

	if ended != 1 {
		t.Fatalf("ended %d sessions that hold %q, want 1", ended, name)
	}
}
