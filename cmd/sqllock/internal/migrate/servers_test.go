package migrate_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
)

// fresh are the databases of this run. Each function returns the URL of an
// empty one of its own.
var fresh = map[string]func(t *testing.T) string{
	"sqlite":   freshSQLite,
	"postgres": freshPostgres,
	"mysql":    func(t *testing.T) string { t.Helper(); return freshMySQL(t, "SQLLOCK_TEST_MYSQL") },
	"mariadb":  func(t *testing.T) string { t.Helper(); return freshMySQL(t, "SQLLOCK_TEST_MARIADB") },
}

// names says which databases this run has: those of SQLLOCK_TEST_DATABASES.
// Without that it is all of them if there is a server, and SQLite alone if
// there is none, so that "go test" works on any machine.
func names() []string {
	if list := os.Getenv("SQLLOCK_TEST_DATABASES"); list != "" {
		return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	}

	for _, variable := range []string{"SQLLOCK_TEST_POSTGRES", "SQLLOCK_TEST_MYSQL", "SQLLOCK_TEST_MARIADB"} {
		if os.Getenv(variable) != "" {
			return []string{"sqlite", "postgres", "mysql", "mariadb"}
		}
	}

	return []string{"sqlite"}
}

func eachDatabase(t *testing.T, test func(t *testing.T, ctx context.Context, url string)) {
	t.Helper()

	known := names()

	for name, makeURL := range fresh {
		if !slices.Contains(known, name) {
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()

			test(t, ctx, makeURL(t))
		})
	}
}

func setting(t *testing.T, variable string) string {
	t.Helper()

	value := os.Getenv(variable)
	if value == "" {
		t.Fatalf("%s is not set; leave the database out with SQLLOCK_TEST_DATABASES", variable)
	}

	return value
}

func freshSQLite(t *testing.T) string {
	t.Helper()

	return "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
}

func freshPostgres(t *testing.T) string {
	t.Helper()

	u, err := url.Parse(setting(t, "SQLLOCK_TEST_POSTGRES"))
	if err != nil {
		t.Fatal(err)
	}

	name := create(t, u.String())
	u.Path = "/" + name

	return u.String()
}

func freshMySQL(t *testing.T, variable string) string {
	t.Helper()

	config, err := mysql.ParseDSN(setting(t, variable))
	if err != nil {
		t.Fatal(err)
	}

	u := url.URL{Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Path: "/" + config.DBName}

	if config.Net == "unix" {
		u.RawQuery = url.Values{"socket": {config.Addr}}.Encode()
	} else if _, _, err := net.SplitHostPort(config.Addr); err != nil {
		t.Fatal(err)
	} else {
		u.Host = config.Addr
	}

	if config.TLSConfig != "" {
		q := u.Query()
		q.Set("tls", config.TLSConfig)
		u.RawQuery = q.Encode()
	}

	u.Path = "/" + create(t, u.String())

	return u.String()
}

// create makes a database and drops it when the test is over.
func create(t *testing.T, admin string) string {
	t.Helper()

	name := "sqllock_cmd_" + strings.ToLower(rand.Text()[:10])
	execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE "+name) })

	return name
}

func execute(t *testing.T, url, statement string) {
	t.Helper()

	withDatabase(t, url, func(db *sql.DB) error {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement)

		return err
	})
}

func withDatabase(t *testing.T, url string, do func(*sql.DB) error) {
	t.Helper()

	db := open(t, context.WithoutCancel(t.Context()), url)
	defer db.Close()

	if err := do(db.SQL); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, ctx context.Context, url string) *dsn.Database {
	t.Helper()

	target, err := dsn.Parse(url)
	if err != nil {
		t.Fatal(err)
	}

	db, err := target.Open(ctx, true)
	if err != nil {
		t.Fatal(err)
	}

	return db
}
