package gooselock_test

import (
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
)

// A target is a database of one test, with the tables of sqllock.
type target struct {
	goose   goose.Dialect
	sqllock string // the dialect's name in package migrations
	driver  string
	dsn     string
	wrap    func(*sql.DB) databases.DB
}

// targets are the databases of SQLLOCK_TEST_DATABASES: without it, SQLite and all that a DSN is set for.
func targets() []string {
	if list := os.Getenv("SQLLOCK_TEST_DATABASES"); list != "" {
		return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	}

	names := []string{"sqlite"}

	for _, name := range []string{"postgres", "mysql", "mariadb"} {
		if os.Getenv(variable(name)) != "" {
			names = append(names, name)
		}
	}

	return names
}

func variable(name string) string { return "SQLLOCK_TEST_" + strings.ToUpper(name) }

// fresh makes a database, which is dropped after the test. One without a DSN is a failure.
func fresh(t *testing.T, name string) target {
	t.Helper()

	dsn := os.Getenv(variable(name))
	if dsn == "" && name != "sqlite" {
		t.Fatalf("%s is not set; leave the database out with SQLLOCK_TEST_DATABASES", variable(name))
	}

	created := "sqllock_goose_" + strings.ToLower(rand.Text()[:10])

	on := dialect(name)

	switch name {
	case "sqlite":
		file := filepath.Join(t.TempDir(), "app.db")
		on.dsn = "file:" + file + "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	case "postgres":
		execute(t, "pgx", dsn, "CREATE DATABASE "+created)
		t.Cleanup(func() { execute(t, "pgx", dsn, "DROP DATABASE "+created+" WITH (FORCE)") })

		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}

		u.Path = "/" + created
		on.dsn = u.String()
	default:
		execute(t, "mysql", dsn, "CREATE DATABASE "+created)
		t.Cleanup(func() { execute(t, "mysql", dsn, "DROP DATABASE "+created) })

		config, err := driver.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}

		config.DBName = created
		config.ParseTime = true // goose scans times
		on.dsn = config.FormatDSN()
	}

	on.makeTables(t)

	return on
}

// dialect is a target without a DSN.
func dialect(name string) target {
	switch name {
	case "sqlite":
		return target{
			goose: goose.DialectSQLite3, sqllock: "sqlite", driver: "sqlite",
			wrap: func(db *sql.DB) databases.DB { return sqlite.New(db) },
		}
	case "postgres":
		return target{
			goose: goose.DialectPostgres, sqllock: "postgres", driver: "pgx",
			wrap: func(db *sql.DB) databases.DB { return postgres.NewStd(db) },
		}
	default:
		return target{
			goose: goose.DialectMySQL, sqllock: "mysql", driver: "mysql",
			wrap: func(db *sql.DB) databases.DB { return mysql.New(db) },
		}
	}
}

func (on target) open(t *testing.T) *sql.DB {
	t.Helper()

	return pool(t, on.driver, on.dsn)
}

func (on target) makeTables(t *testing.T) {
	t.Helper()

	files, err := migrations.For(on.sqllock)
	if err != nil {
		t.Fatal(err)
	}

	store, err := database.NewStore(on.goose, migrations.TableName)
	if err != nil {
		t.Fatal(err)
	}

	provider, err := goose.NewProvider("", on.open(t), files, goose.WithStore(store))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func pool(t *testing.T, driverName, dsn string) *sql.DB {
	t.Helper()

	db, err := sql.Open(driverName, dsn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}

// execute also runs when the test is over, so with no context of it.
func execute(t *testing.T, driverName, dsn, statement string) {
	t.Helper()

	db, err := sql.Open(driverName, dsn)
	if err != nil {
		t.Fatal(err)
	}

	defer db.Close()

	if _, err := db.Exec(statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}
