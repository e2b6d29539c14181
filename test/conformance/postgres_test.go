package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/internal/outsider"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// Driver modes: how an application may have set up its pool. The first runs all cases.
var postgresModes = []struct {
	name  string
	plain bool
	open  func(t *testing.T, config *pgx.ConnConfig) pool
}{
	{"pgxpool", false, pgxMode(pgx.QueryExecModeCacheStatement)},
	{"plain", true, pgxMode(pgx.QueryExecModeCacheStatement)},
	{"pgxpool-exec", false, pgxMode(pgx.QueryExecModeExec)},
	{"pgxpool-simple", false, pgxMode(pgx.QueryExecModeSimpleProtocol)},
	{"stdlib", false, func(_ *testing.T, c *pgx.ConnConfig) pool { return poolOfStd{openStd(c), newStd} }},
	{"libpq", false, func(t *testing.T, c *pgx.ConnConfig) pool { return poolOfStd{openLibpq(t, c), newStd} }},
}

func pgxMode(mode pgx.QueryExecMode) func(*testing.T, *pgx.ConnConfig) pool {
	return func(t *testing.T, c *pgx.ConnConfig) pool {
		t.Helper()

		return poolOfPgx{openPgx(t, c, mode)}
	}
}

func newStd(db *sql.DB) databases.DB { return postgres.NewStd(db) }

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
				beside, callers := stdPool(t, pastProxy(t, config)), stdPool(t, config)

				pools := newStock(t)
				open := func() pool { return mode.open(t, config) }

				var seen sync.Map

				t.Cleanup(func() {
					if !proxied() {
						resolved(t, config, stranger(), &seen)
					}

					atPrimary(t, pastProxy(t, config), &seen)
				})

				sqllocktest.Run(t, sqllocktest.Harness{
					Only: part(m, n),
					New: func(t *testing.T) sqllocktest.Fixture {
						note := func(s databases.Statement, _ databases.Values) { seen.Store(s.SQL, s.Name) }
						db := watched{pools.take(t, open), note}
						faulty := sqllocktest.NewFaulty(db)
						other := sqllocktest.NewFaulty(watched{pools.take(t, open), note})
						wrap := func(tx *sql.Tx) databases.Tx { return db.Tx(postgres.StdTx(tx)) }

						fixture := sqllocktest.Fixture{
							Strategy: strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Rivals: func(t *testing.T) []strategies.Strategy {
								return rivals(t, strategy.Name, func() databases.DB { return pools.take(t, open) })
							},
						}
						outsider.Outsider{DB: beside, Callers: callers, Dialect: databases.Postgres, Strategy: strategy.Name}.Equip(&fixture, wrap)

						return fixture
					},
					Isolations: outsider.Isolations(databases.Postgres),
					TryWithin:  tryWithin,
					Patience:   casePatience,
					Statements: outsider.Statements(strategy.Name, databases.Postgres),
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
	maintenance := stdPool(t, pastProxy(t, server))
	exec(t, maintenance, "CREATE DATABASE "+name+" TEMPLATE "+original.name)
	t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })

	config := server.Copy()
	config.Database = name

	return config
}

// proxiedServer names the server behind the proxy that SQLLOCK_TEST_POSTGRES names, if it does.
const proxiedServer = "SQLLOCK_TEST_POSTGRES_SERVER"

func proxied() bool { return os.Getenv(proxiedServer) != "" }

// pastProxy is the way to the server, past a proxy, for what tests do beside the locks.
func pastProxy(t *testing.T, config *pgx.ConnConfig) *pgx.ConnConfig {
	t.Helper()

	if !proxied() {
		return config
	}

	past, err := pgx.ParseConfig(os.Getenv(proxiedServer))
	if err != nil {
		t.Fatal(err)
	}

	past.Database = config.Database

	return past
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

	server = pastProxy(t, server)
	original.server, original.name = server, uniqueName()
	exec(t, stdPool(t, server), "CREATE DATABASE "+original.name)

	config := server.Copy()
	config.Database = original.name
	db := stdPool(t, config)

	// pgpool-II asks the catalog without the schemas of operators, and would call the stranger's.
	if !proxied() {
		plant(t, db, stranger())
	}

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

	db := openStd(config)
	t.Cleanup(func() { _ = db.Close() })

	return db
}

func openStd(config *pgx.ConnConfig) *sql.DB {
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(poolSize)

	return db
}

func pgxPool(t *testing.T, config *pgx.ConnConfig, mode pgx.QueryExecMode) databases.DB {
	t.Helper()

	pool := openPgx(t, config, mode)
	t.Cleanup(pool.Close)

	return postgres.New(pool)
}

func openPgx(t *testing.T, config *pgx.ConnConfig, mode pgx.QueryExecMode) *pgxpool.Pool {
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

	return pool
}

func libpqPool(t *testing.T, config *pgx.ConnConfig) *sql.DB {
	t.Helper()

	db := openLibpq(t, config)
	t.Cleanup(func() { _ = db.Close() })

	return db
}

func openLibpq(t *testing.T, config *pgx.ConnConfig) *sql.DB {
	t.Helper()

	db, err := sql.Open("postgres", libpqString(config))
	if err != nil {
		t.Fatal(err)
	}

	db.SetMaxOpenConns(poolSize)

	return db
}

func libpqString(c *pgx.ConnConfig) string {
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }

	return fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s sslmode=disable",
		quote(c.Host), c.Port, quote(c.User), quote(c.Password), quote(c.Database))
}
