package dsn_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
)

// secret is what no text that may be shown has in it.
const secret = "S3CRET"

// FuzzParse checks that no text makes Parse panic, that an error is one line, and
// that what is shown of a database is read as the same database again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"postgres://app:pw@db:5433/app?sslmode=disable", "postgresql:///app?host=/run/postgresql", "postgres://[::1]/a",
		"mysql://app:p%40@db/app", "mariadb://app:pw@[::1]:3307/a%20p?tls=true", "mysql://app@/app?socket=/run/mysqld.sock",
		"sqlite:locks.db", "sqlite:///var/lib/a b.db?_pragma=busy_timeout(9)", "file:/var/lib/lo%20cks.db", "file://localhost/x",
		"sqlite::memory:", "sqlite:", "", ":", "://", "oracle://a:b@c/d", "app:pw@tcp(db:3306)/app", "host=db password=pw",
		"postgres://a:b%zz@c/d", "mysql://db/a?timeout=x", "POSTGRES://db/a", "sqlite:a%3Fb?mode=memory", "sqlite:a?;",
	} {
		f.Add(text)
	}

	f.Fuzz(func(t *testing.T, text string) {
		target, err := dsn.Parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("Parse(%q) = %q, want one line", text, err)
			}

			return
		}

		if target.Dialect == "" || target.Driver() == "" {
			t.Errorf("Parse(%q) = %#v of %q", text, target, target.Dialect)
		}

		// What is shown of an SQLite path with a ? is another path; MySQL's socket
		// and other parameters are not shown.
		again, err := dsn.Parse(target.String())
		if err == nil && again.String() != target.String() && !strings.Contains(target.Path, "?") {
			t.Errorf("Parse(%q) is shown as %s, and that as %s", text, target, again)
		}
	})
}

// FuzzPassword checks that nothing shows the password, wherever it is in a URL and
// however it is written.
func FuzzPassword(f *testing.F) {
	for _, c := range [][4]string{
		{"postgres", "app", "", "db/app"},
		{"mysql", "app", "", "db/app"},
		{"mysql", "app", "", "db/app?timeout=x"},
		{"postgres", "app", "/", "db/app"},
		{"postgres", "app", "1/", "db/app"},
		{"postgres", "app", "1?", "db/app"},
		{"postgres", "app", "1#", "db/app"},
		{"mysql", "app", "1/", "db/app"},
		{"mysql", "app", "1#", "db/app"},
		{"postgres", "app", "@", "db/app?sslmode=x"},
		{"postgres", "app", "%", "db/app"},
		{"postgres", "app", "%20 '", "db/app?a=b"},
		{"postgres", "a/b", "", "db/app"},
		{"oracle", "app", "", "db/app"},
		{"", "app", "", "tcp(db)/app"},
		{"postgres", "app", "\"\\", "db/app?pool_max_conns=x"},
		{"mysql", "", "%0a", "db/app?tls=x"},
		{"mysql", "a", ":", "/?a"},
	} {
		f.Add(c[0], c[1], c[2], c[3])
	}

	f.Fuzz(func(t *testing.T, scheme, user, password, rest string) {
		if strings.Contains(scheme+user+rest, secret) {
			return
		}

		separator := "?"
		if strings.Contains(rest, "?") {
			separator = "&"
		}

		for _, url := range []string{
			scheme + "://" + user + ":" + secret + password + "@" + rest,
			scheme + "://" + user + ":" + password + secret + "@" + rest,
			scheme + "://" + user + "@" + rest + separator + "password=" + secret + password,
			scheme + "://" + user + "@" + rest + separator + "password=" + password + secret,
			scheme + "://" + user + "@" + rest + separator + "pass%77ord=" + password + secret,
		} {
			target, err := dsn.Parse(url)

			shown := fmt.Sprint(err)
			if err == nil {
				shown = fmt.Sprintf("%v %+v %#v %q %s", target, target, target, target, target.MigrateCommand())
			}

			// An SQLite database has no password: all before the ? is its path.
			if strings.Contains(strings.ToUpper(shown), secret) && target.Path == "" {
				t.Errorf("Parse(%q) shows the password: %s", url, shown)
			}
		}
	})
}
