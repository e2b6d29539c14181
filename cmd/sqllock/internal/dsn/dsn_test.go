package dsn_test

import (
	"fmt"
	"net/url"
	"os"
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
		{"tidb://app:s3cret@db/app", "tidb://app@db/app", databases.TiDB},
		{"mysql://app:s3cret@db/a%40b", "mysql://app@db/a%40b", databases.MySQL},
		{"mariadb://app:s3%40cret@[::1]:3307/app?tls=true", "mariadb://app@[::1]:3307/app", databases.MySQL},
		{"sqlite:locks.db", "sqlite:locks.db", databases.SQLite},
		{"sqlite://a folder/locks.db", "sqlite:a folder/locks.db", databases.SQLite},
		{"sqlite:///var/lib/locks.db?_pragma=busy_timeout(9)", "sqlite:/var/lib/locks.db", databases.SQLite},
		{"file:/var/lib/lo%20cks.db", "sqlite:/var/lib/lo cks.db", databases.SQLite},
		{"file:/var/lib/lo%3Fcks.db?_txlock=deferred", "sqlite:/var/lib/lo?cks.db", databases.SQLite},
		{"file://localhost/var/locks.db", "sqlite:/var/locks.db", databases.SQLite},
		{"sqlite:/var/a:b@c/locks.db", "sqlite:/var/a:b@c/locks.db", databases.SQLite},
		{"sqlite:./a:b@c.db", "sqlite:./a:b@c.db", databases.SQLite},
		{"mysql://app@db/app?tls=true&x=%3B%25", "mysql://app@db/app", databases.MySQL},
		{"file:////server/locks.db", "sqlite:////server/locks.db", databases.SQLite},
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
		{"tidb://app@db/app", "app", "", "tcp", "db:4000", "app", ""},
		{"mysql://app:p%40%2F%3A%3Fw@db:3307/app", "app", "p@/:?w", "tcp", "db:3307", "app", ""},
		{"mysql://app:pw@[::1]/a%20p?tls=true", "app", "pw", "tcp", "[::1]:3306", "a p", "true"},
		{"mysql://app:pw@/app?socket=/run/mysqld/mysqld.sock", "app", "pw", "unix", "/run/mysqld/mysqld.sock", "app", ""},
	} {
		target, err := dsn.Parse(c.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.text, err)

			continue
		}

		got, err := target.MySQLConfig()
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

func TestParseMySQLInterpolatesWhatIsSafe(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		parameters string
		want       bool
	}{
		{"", true},
		{"charset=gbk", false},
		{"charset=utf8mb4,sjis", false},
		{"collation=gbk_chinese_ci", false},
		{"collation=latin1_bin", false},
		{"character_set_client=cp932", false},
		{"charset=gbk&interpolateParams=true", true}, // as asked
	} {
		target, err := dsn.Parse("mysql://app@db/app?" + c.parameters)
		if err != nil {
			t.Errorf("Parse() with %s: %v", c.parameters, err)

			continue
		}

		got, err := mysql.ParseDSN(target.Driver())
		if err != nil {
			t.Errorf("Parse() with %s = %q, which the driver refuses: %v", c.parameters, target.Driver(), err)

			continue
		}

		if got.InterpolateParams != c.want {
			t.Errorf("Parse() with %s: interpolateParams=%t, want %t", c.parameters, got.InterpolateParams, c.want)
		}
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
	if want := "[journal_mode(WAL) synchronous(FULL) busy_timeout(9)] [immediate]"; got != want {
		t.Errorf("parameters = %s, want %s", got, want)
	}
}

// TestPragmas: what the user sets is what the driver sets.
func TestPragmas(t *testing.T) {
	t.Parallel()

	for given, want := range map[string]int{
		"": 2000, "?_pragma=busy_timeout(200)": 200, "?_pragma=BUSY_TIMEOUT(7000)": 7000, "?_pragma=busy_timeout%3D0": 0, "?_pragma=cache_size(9)": 2000,
	} {
		target, err := dsn.Parse("sqlite:" + filepath.Join(t.TempDir(), "locks.db") + given)
		if err != nil {
			t.Fatal(err)
		}

		db, err := target.Open(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}

		var milli int
		if err := db.SQL.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&milli); err != nil || milli != want {
			t.Errorf("the busy timeout with %q is %d, %v, want %d", given, milli, err, want)
		}

		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ text, want string }{
		{"app", "must be a URL"},
		{"app:s3cret@tcp(db:3306)/app", "must be a URL"},
		{"host=db password=s3cret", "must be a URL"},
		{"oracle://app:s3cret@db/app", "must be a URL"},
		{"postgres://app:s3cret%zz@db/app", "percent-encoded"},
		{"postgres://app:s3cret@db:54x2/app", "cannot be read"},
		{"mysql://db:s3cret", "cannot be read"},
		{"mysql://app:s3cret@[::1]:x/app", "cannot be read"},
		{"postgres://app:x/s3cret@db/app", "percent-encoded"},
		{"postgres://app:x#s3cret@db/app", "percent-encoded"},
		{"mysql://app:s3cret@tcp(db:3306)/app", "cannot be read"},
		{"postgres://app:s3cret/@db/app", "percent-encoded"},
		{"postgres://app:/s3cret@db/app", "percent-encoded"},
		{"postgres://app:1/s3cret@db/app", "percent-encoded"},
		{"postgres://app:1?s3cret@db/app", "percent-encoded"},
		{"mysql://app:1#s3cret@db/app", "percent-encoded"},
		{"mysql://app@db/app&password=s3cret", "percent-encoded"},
		{"postgres://app@db/app?password=1&s3cret", "percent-encoded"},
		{"postgres://app@db/app?password=1&s3cret=2&sslmode=x", "sslmode is invalid"},
		{"mysql://app@db/app?timeout=x?password=s3cret", "percent-encoded"},
		{"postgres://app:s3cret@db/app?pool_max_conns=x", "pool_max_conns"},
		{"postgres://app@db/app?password=s3cret&sslmode=x", "sslmode"},
		{"mysql://app:s3cret@db", "names no database"},
		{"tidb://app:s3cret@db", "tidb://user:password@host/db"},
		{"mysql://app@db/app?password=s3cret", "the password stands before the host"},
		// A password that is a letter of the message is neither shown nor taken out.
		{"postgres://app:i@db/app?sslmode=s", "sslmode is invalid"},
		{"postgres://app@db/app?password=i&sslmode=s", "sslmode is invalid"},
		{"mysql://app:i@db/app?timeout=x", "invalid duration"},
		{"mysql://app:s3cret@db/app?timeout=x", "invalid duration"},
		// Parameters that cannot be read would be left out, and the connection have no TLS.
		{"mysql://app@db/app?tls=true;timeout=5s", "percent-encoded"},
		{"mysql://app@db/app?tls=true%zz", "percent-encoded"},
		{"mysql://app@db/app?tls=true&x=%", "percent-encoded"},
		{"mariadb://app:s3cret@db/app?tls%zz=true", "percent-encoded"},
		{"postgres://app@db/app?sslmode=verify-full;connect_timeout=5", "percent-encoded"},
		{"postgres://app@db/app?sslmode=verify-full%zz&password=s3cret", "percent-encoded"},
		{"sqlite:locks.db?_pragma=a;b=s3cret", "cannot be read"},
		{"file:locks.db?_pragma=a%zz", "cannot be read"},
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

// TestIsDatabase tells what stands in the place of a name from names.
func TestIsDatabase(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]bool{
		"postgres://app:s3cret@db/app":          true,
		"PostgreSQL://app@db/app":               true,
		"mariadb://app:s3cret@db/app":           true,
		"postgres://db/app?user=app&password=x": true,
		"postgres://db/app?pass%77ord=x":        true,
		"nightly":                               false,
		"customer/7":                            false,
		"postgres://db/app":                     false,
		"sqlite:locks.db":                       false,
		"https://u:p@h/x":                       false,
		"invoice:bob@example.com":               false,
		"reset-password=17":                     false,
		"host=web-1":                            false,
		"job host=web-1 bypass=1":               false,
		"copy postgres://a@b/c":                 false,
		"":                                      false,
	} {
		if got := dsn.IsDatabase(text); got != want {
			t.Errorf("IsDatabase(%q) = %t, want %t", text, got, want)
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

// TestPasswords makes sure that the drivers get them, though no text has them.
func TestPasswords(t *testing.T) {
	t.Setenv("PGPASSWORD", "of the environment")

	for _, c := range []struct{ text, want string }{
		{"postgres://app:p%40%2F@db/app", "p@/"},
		{"postgres://app:pw@db/app?password=other", "other"},
		{"postgres://app@db/app?pass%77ord=p%26w&sslmode=disable", "p&w"},
		{"postgres://app@db/app", "of the environment"},
		{"postgres://app:@db/app", "of the environment"},
	} {
		target, err := dsn.Parse(c.text)
		if err != nil {
			t.Fatal(err)
		}

		config, err := target.PostgresConfig()
		if err != nil || config.ConnConfig.Password != c.want {
			t.Errorf("Parse(%q) gives pgx the password %q (%v), want %q", c.text, config.ConnConfig.Password, err, c.want)
		}
	}
}

// lookup looks up in a map as os.LookupEnv does in the environment.
func lookup(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, set := variables[name]

		return value, set
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()

	state := t.TempDir()

	file := filepath.Join(state, "dsn")
	if err := os.WriteFile(file, []byte("mysql://app:s3cret@db/app\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ flag, file, variable, want, migrate string }{
		{"sqlite:a.db", "", "sqlite:b.db", "sqlite:a.db", "sqllock migrate up --dsn sqlite:a.db"},
		{"", file, "sqlite:b.db", "mysql://app@db/app", "sqllock migrate up --dsn-file " + file},
		{"sqlite:a b's.db?mode=rw", "", "", "sqlite:a b's.db", `sqllock migrate up --dsn 'sqlite:a b'\''s.db?mode=rw'`},
		{
			"postgres://app@db/app?search_path=other&sslmode=require", "", "",
			"postgres://app@db/app", "sqllock migrate up --dsn 'postgres://app@db/app?search_path=other&sslmode=require'",
		},
		{
			"postgres://app@db/app?options=-csearch_path%3Dother", "", "",
			"postgres://app@db/app", "sqllock migrate up --dsn 'postgres://app@db/app?options=-csearch_path%3Dother'",
		},
		{
			"mysql://app@/app?socket=/run/mysqld.sock", "", "",
			"mysql://app@/app", "sqllock migrate up --dsn 'mysql://app@/app?socket=/run/mysqld.sock'",
		},
		{"", "", "sqlite:b.db", "sqlite:b.db", "sqllock migrate up"},
		{"", "", "", "sqlite:" + filepath.Join(state, "sqllock", "locks.db"), "sqllock migrate up"},
	} {
		variables := map[string]string{"XDG_STATE_HOME": state}
		if c.variable != "" {
			variables[dsn.Variable] = c.variable
		}

		target, err := dsn.Resolve(c.flag, c.file, lookup(variables))
		if err != nil {
			t.Errorf("Resolve(%q, %q, %q): %v", c.flag, c.file, c.variable, err)

			continue
		}

		if target.String() != c.want || target.MigrateCommand() != c.migrate {
			t.Errorf("Resolve(%q, %q, %q) = %s (%s), want %s (%s)",
				c.flag, c.file, c.variable, target, target.MigrateCommand(), c.want, c.migrate)
		}
	}
}

// TestResolveLibpqVariables sets variables of this process, which pgx reads.
func TestResolveLibpqVariables(t *testing.T) { //nolint:paralleltest // it sets the environment
	passwords := filepath.Join(t.TempDir(), "pgpass")
	if err := os.WriteFile(passwords, []byte("db:5433:app:me:s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, value := range map[string]string{
		"PGHOST": "db", "PGPORT": "5433", "PGUSER": "me", "PGDATABASE": "app", "PGPASSFILE": passwords, "PGPASSWORD": "",
	} {
		t.Setenv(name, value)
	}

	target, err := dsn.Resolve("", "", func(name string) (string, bool) {
		if name == dsn.Variable {
			return "", false
		}

		return os.LookupEnv(name)
	})
	if err != nil {
		t.Fatal(err)
	}

	config, err := target.PostgresConfig()
	if err != nil {
		t.Fatal(err)
	}

	if target.String() != "postgres://me@db:5433/app" || config.ConnConfig.Password != "s3cret" {
		t.Errorf("Resolve() = %s with password %q", target, config.ConnConfig.Password)
	}
}

func TestResolveErrors(t *testing.T) {
	t.Parallel()

	written := func(text string) string {
		file := filepath.Join(t.TempDir(), "dsn")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		return file
	}

	for _, c := range []struct {
		flag, file string
		variables  map[string]string
		want       string
	}{
		{"sqlite:a", "b", nil, "cannot be used together"},
		{"postgres://app:s3cret@db/app", "", nil, "--dsn has a password"},
		{"mysql://app:@db/app", "", nil, "--dsn has a password"},
		{"postgres://app@db/app?pass%77ord=s3cret", "", nil, "--dsn has a password"},
		{"postgres://app@db/app?sslpassword=s3cret", "", nil, "--dsn has a password"},
		{"", filepath.Join(t.TempDir(), "none"), nil, "no such file"},
		{"", written(" \n"), nil, "is empty"},
		{"", written("sqlite:a\nmysql://app:s3cret@db/app\n"), nil, "has more lines than the URL's"},
		{"", "postgres://app:s3cret@db/app", nil, "--dsn-file takes a file with the URL, and was given a URL; use --dsn or"},
		{"", "app:s3cret@tcp(db)/app", nil, "use --dsn or"},
		{"", "sqlite:locks.db", nil, "use --dsn or"},
		{"", "", map[string]string{dsn.Variable: ""}, "DATABASE_URL is empty"},
		{"", "", map[string]string{dsn.Variable: "", "PGHOST": "db"}, "DATABASE_URL is empty"},
		{"", "", map[string]string{"MYSQL_HOST": "db"}, "MYSQL_HOST is not read"},
	} {
		_, err := dsn.Resolve(c.flag, c.file, lookup(c.variables))

		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Resolve(%q, %q, %v) = %v, want %q in it and no password", c.flag, c.file, c.variables, err, c.want)
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
