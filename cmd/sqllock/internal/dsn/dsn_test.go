package dsn_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
)

func TestParse(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		text, shown string
		dialect     databases.Dialect
	}{
		{"postgres://app:s3cret@db:5433/app?sslmode=disable", "postgres://app@db:5433/app", databases.Postgres},
		{"postgresql:///app?host=/run/postgresql", "postgresql:///app", databases.Postgres},
		{"postgres://app@db/app?password=s3cret", "postgres://app@db/app", databases.Postgres},
		{"mysql://app:s3cret@db/app", "mysql://app@db/app", databases.MySQL},
		{"mariadb://app:s3%40cret@[::1]:3307/app?tls=true", "mariadb://app@[::1]:3307/app", databases.MySQL},
		{"sqlite:locks.db", "sqlite:locks.db", databases.SQLite},
		{"sqlite://a folder/locks.db", "sqlite:a folder/locks.db", databases.SQLite},
		{"sqlite:///var/lib/locks.db?_pragma=busy_timeout(9)", "sqlite:/var/lib/locks.db", databases.SQLite},
		{"file:/var/lib/lo%20cks.db", "sqlite:/var/lib/lo cks.db", databases.SQLite},
		{"file://localhost/var/locks.db", "sqlite:/var/locks.db", databases.SQLite},
	} {
		target, err := dsn.Parse(c.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.text, err)

			continue
		}

		if target.String() != c.shown || target.Dialect != c.dialect {
			t.Errorf("Parse(%q) = %s, %s, want %s, %s", c.text, target, target.Dialect, c.shown, c.dialect)
		}
	}
}

func TestParseMySQL(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ text, user, password, network, address, name, tls string }{
		{"mysql://app@db/app", "app", "", "tcp", "db:3306", "app", ""},
		{"mysql://app:p%40%2F%3A%3Fw@db:3307/app", "app", "p@/:?w", "tcp", "db:3307", "app", ""},
		{"mysql://app:pw@[::1]/a%20p?tls=true", "app", "pw", "tcp", "[::1]:3306", "a p", "true"},
		{"mysql://app:pw@/app?socket=/run/mysqld/mysqld.sock", "app", "pw", "unix", "/run/mysqld/mysqld.sock", "app", ""},
	} {
		target, err := dsn.Parse(c.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.text, err)

			continue
		}

		got, err := mysql.ParseDSN(target.Driver())
		if err != nil {
			t.Errorf("Parse(%q) = %q, which the driver refuses: %v", c.text, target.Driver(), err)

			continue
		}

		if got.User != c.user || got.Passwd != c.password || got.Net != c.network || got.Addr != c.address ||
			got.DBName != c.name || got.TLSConfig != c.tls {
			t.Errorf("Parse(%q) = %+v, want %+v", c.text, got, c)
		}

		if !got.InterpolateParams || got.Timeout == 0 {
			t.Errorf("Parse(%q) has no interpolateParams or no timeout", c.text)
		}
	}
}

func TestParseMySQLKeepsParameters(t *testing.T) {
	t.Parallel()

	target, err := dsn.Parse("mysql://app@db/app?interpolateParams=false&timeout=3s")
	if err != nil {
		t.Fatal(err)
	}

	got, err := mysql.ParseDSN(target.Driver())
	if err != nil {
		t.Fatal(err)
	}

	if got.InterpolateParams || got.Timeout.String() != "3s" {
		t.Errorf("interpolateParams, timeout = %t, %s, want false, 3s", got.InterpolateParams, got.Timeout)
	}
}

func TestParseSQLite(t *testing.T) {
	t.Parallel()

	target, err := dsn.Parse("sqlite:/a folder/50%#.db?_pragma=busy_timeout(9)")
	if err != nil {
		t.Fatal(err)
	}

	path, query, _ := strings.Cut(target.Driver(), "?")
	if want := "file:/a%20folder/50%25%23.db"; path != want {
		t.Errorf("path = %s, want %s", path, want)
	}

	parameters, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}

	got := fmt.Sprint(parameters["_pragma"], parameters["_txlock"])
	if want := "[busy_timeout(2000) journal_mode(WAL) synchronous(FULL) busy_timeout(9)] [immediate]"; got != want {
		t.Errorf("parameters = %s, want %s", got, want)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ text, want string }{
		{"app", "must be a URL"},
		{"app:s3cret@tcp(db:3306)/app", "must be a URL"},
		{"host=db password=s3cret", "must be a URL"},
		{"oracle://app:s3cret@db/app", `no database "oracle://"`},
		{"postgres://app:s3cret%zz@db/app", "percent-encoded"},
		{"postgres://app:s3cret/@db/app", "percent-encoded"},
		{"postgres://app:s3cret@db/app?pool_max_conns=x", "pool_max_conns"},
		{"postgres://app@db/app?password=s3cret&sslmode=x", "sslmode"},
		{"mysql://app:s3cret@db", "names no database"},
		{"mysql://app:s3cret@db/app?timeout=x", "invalid duration"},
		{"sqlite:", "names no file"},
		{"sqlite::memory:", "in memory"},
		{"file:x?mode=memory", "in memory"},
	} {
		_, err := dsn.Parse(c.text)

		switch {
		case err == nil:
			t.Errorf("Parse(%q) = nil, want an error with %q", c.text, c.want)
		case !strings.Contains(err.Error(), c.want):
			t.Errorf("Parse(%q) = %q, want %q in it", c.text, err, c.want)
		case strings.Contains(err.Error(), "s3cret"):
			t.Errorf("Parse(%q) shows the password: %v", c.text, err)
		}
	}
}

func TestTargetHidesThePassword(t *testing.T) {
	t.Parallel()

	for _, text := range []string{"postgres://app:s3cret@db/app", "mysql://app:s3cret@db/app"} {
		target, err := dsn.Parse(text)
		if err != nil {
			t.Fatal(err)
		}

		for _, format := range []string{"%s", "%v", "%+v", "%#v", "%q"} {
			if got := fmt.Sprintf(format, target); strings.Contains(got, "s3cret") {
				t.Errorf("Sprintf(%q) = %s, with the password", format, got)
			}
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()

	state := t.TempDir()

	for _, c := range []struct{ flag, variable, want, migrate string }{
		{"sqlite:a.db", "sqlite:b.db", "sqlite:a.db", "sqllock migrate up --dsn sqlite:a.db"},
		{"", "sqlite:b.db", "sqlite:b.db", "sqllock migrate up"},
		{"", "", "sqlite:" + filepath.Join(state, "sqllock", "locks.db"), "sqllock migrate up"},
	} {
		target, err := dsn.Resolve(c.flag, func(name string) string {
			return map[string]string{dsn.Variable: c.variable, "XDG_STATE_HOME": state}[name]
		})
		if err != nil {
			t.Errorf("Resolve(%q, %q): %v", c.flag, c.variable, err)

			continue
		}

		if target.String() != c.want || target.MigrateCommand() != c.migrate {
			t.Errorf("Resolve(%q, %q) = %s (%s), want %s (%s)",
				c.flag, c.variable, target, target.MigrateCommand(), c.want, c.migrate)
		}
	}
}

func TestStateFolder(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		system, variable, value, want string
	}{
		{"linux", "HOME", "/home/a", "/home/a/.local/state/sqllock"},
		{"linux", "XDG_STATE_HOME", "/state", "/state/sqllock"},
		{"darwin", "HOME", "/Users/a", "/Users/a/Library/Application Support/sqllock"},
		{"windows", "LocalAppData", "/local", "/local/sqllock"},
	} {
		got, err := dsn.StateFolder(c.system, func(name string) string {
			return map[string]string{c.variable: c.value}[name]
		})
		if err != nil || filepath.ToSlash(got) != c.want {
			t.Errorf("StateFolder(%s, %s=%s) = %s, %v, want %s", c.system, c.variable, c.value, got, err, c.want)
		}
	}
}
