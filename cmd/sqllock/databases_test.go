package main

import (
	"context"
	"crypto/rand"
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

// databaseNames says which databases this run has: those of SQLLOCK_TEST_DATABASES.
// Without that it is all of them if there is a server, and SQLite alone if
// there is none, so that "go test" works on any machine.
func databaseNames() []string {
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

// serverNames are the databaseNames without SQLite.
func serverNames() []string {
	return slices.DeleteFunc(databaseNames(), func(name string) bool { return name == "sqlite" })
}

// someDatabases are the databaseNames, and with -short SQLite and one of the servers, another one for another test.
func someDatabases(t *testing.T) []string {
	t.Helper()

	names := databaseNames()
	if servers := serverNames(); testing.Short() && len(servers) > 1 {
		other := servers[len(t.Name())%len(servers)]
		names = slices.DeleteFunc(names, func(name string) bool { return name != "sqlite" && name != other })
	}

	return names
}

// eachDatabase runs a test on someDatabases, with the URL of an empty one.
func eachDatabase(t *testing.T, test func(t *testing.T, ctx context.Context, url string)) {
	t.Helper()

	for _, name := range someDatabases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()

			test(t, ctx, freshDatabase(t, name))
		})
	}
}

// freshDatabase returns the URL of an empty database, which is dropped after the test. A test
// on a server that is none of the databaseNames is skipped; SQLite needs none.
func freshDatabase(tb testing.TB, name string) string {
	tb.Helper()

	if name == "sqlite" {
		return "sqlite:" + filepath.Join(tb.TempDir(), "locks.db")
	}

	if !slices.Contains(databaseNames(), name) {
		tb.Skipf("this run has no %s", name)
	}

	switch name {
	case "postgres":
		return freshPostgres(tb)
	case "mysql":
		return freshMySQL(tb, "SQLLOCK_TEST_MYSQL")
	case "mariadb":
		return freshMySQL(tb, "SQLLOCK_TEST_MARIADB")
	default:
		tb.Fatalf("SQLLOCK_TEST_DATABASES: no database %q", name)

		return ""
	}
}

func setting(tb testing.TB, variable string) string {
	tb.Helper()

	value := os.Getenv(variable)
	if value == "" {
		tb.Fatalf("%s is not set; leave the database out with SQLLOCK_TEST_DATABASES", variable)
	}

	return value
}

func freshPostgres(tb testing.TB) string {
	tb.Helper()

	u, err := url.Parse(setting(tb, "SQLLOCK_TEST_POSTGRES"))
	if err != nil {
		tb.Fatal(err)
	}

	name := create(tb, u.String())
	u.Path = "/" + name

	return u.String()
}

func freshMySQL(tb testing.TB, variable string) string {
	tb.Helper()

	config, err := mysql.ParseDSN(setting(tb, variable))
	if err != nil {
		tb.Fatal(err)
	}

	u := url.URL{Scheme: "mysql", User: url.UserPassword(config.User, config.Passwd), Path: "/" + config.DBName}

	if config.Net == "unix" {
		u.RawQuery = url.Values{"socket": {config.Addr}}.Encode()
	} else if _, _, err := net.SplitHostPort(config.Addr); err != nil {
		tb.Fatal(err)
	} else {
		u.Host = config.Addr
	}

	if config.TLSConfig != "" {
		q := u.Query()
		q.Set("tls", config.TLSConfig)
		u.RawQuery = q.Encode()
	}

	u.Path = "/" + create(tb, u.String())

	return u.String()
}

// create makes a database and drops it when the test is over.
func create(tb testing.TB, admin string) string {
	tb.Helper()

	name := "sqllock_cmd_" + strings.ToLower(rand.Text()[:10])
	executeOn(tb, admin, "CREATE DATABASE "+name)
	tb.Cleanup(func() { drop(tb, admin, name) })

	return name
}

// drop also ends the sessions of processes that a test killed, for which
// PostgreSQL would not drop the database.
func drop(tb testing.TB, admin, name string) {
	tb.Helper()

	statement := "DROP DATABASE " + name
	if strings.HasPrefix(admin, "postgres") {
		statement += " WITH (FORCE)"
	}

	executeOn(tb, admin, statement)
}

// executeOn runs a statement.
func executeOn(tb testing.TB, url, statement string) {
	tb.Helper()

	ctx := context.WithoutCancel(tb.Context())
	db := openDatabase(tb, ctx, url)

	defer db.Close()

	if _, err := db.SQL.ExecContext(ctx, statement); err != nil {
		tb.Fatal(err)
	}
}

// openDatabase opens the database of a URL; the caller closes it.
func openDatabase(tb testing.TB, ctx context.Context, url string) *dsn.Database {
	tb.Helper()

	target, err := dsn.Parse(url)
	if err != nil {
		tb.Fatal(err)
	}

	db, err := target.Open(ctx, true)
	if err != nil {
		tb.Fatal(err)
	}

	return db
}
