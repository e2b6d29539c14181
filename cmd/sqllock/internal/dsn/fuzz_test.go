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

			if said := dsn.Masked(fmt.Sprintf("unknown command %q for \"sqllock\"", url)); strings.Contains(strings.ToUpper(said), secret) {
				t.Errorf("Masked() shows the password: %s", said)
			}

			// An SQLite database has no password: all before the ? is its path.
			if strings.Contains(strings.ToUpper(shown), secret) && target.Path == "" {
				t.Errorf("Parse(%q) shows the password: %s", url, shown)
			}
		}
	})
}

// FuzzMasked checks that a message shows no password of what it quotes, nor of one
// word that it says without quotes, and that nothing is masked twice.
func FuzzMasked(f *testing.F) {
	for _, c := range [][3]string{
		{"app", "", "db)/app"},
		{"app", "1/", "db:3306)/app"},
		{"a b", " x@tcp(", "db)"},
		{"", "'", ""},
		{"password", "\\'=\"", "?a"},
		{"user=u host", "\x00 \n", "\"x\" 'y'"},
		{"postgres", "//", ""},
	} {
		f.Add(c[0], c[1], c[2])
	}

	f.Fuzz(func(t *testing.T, user, password, rest string) {
		if strings.Contains(strings.ToUpper(user+rest), secret) || strings.Contains(user, ":") {
			return
		}

		for _, text := range []string{
			user + ":" + secret + password + "@tcp(" + rest,
			user + ":" + password + secret + "@unix(" + rest,
			user + " password=" + password + secret + rest,
			user + " pass%57d = " + secret + password + rest,
			user + " sslpassword='" + password + secret + "' " + rest,
		} {
			messages := []string{fmt.Sprintf("unknown command %q for %q", text, "sqllock")}

			// A word ends at a space, and an argument that has one is quoted.
			if !strings.ContainsAny(strings.Replace(text, user+" pass", "", 1), " \t\r\n\f\"'") {
				messages = append(messages, "command not found: "+text)
			}

			for _, message := range messages {
				said := dsn.Masked(message)

				if strings.Contains(strings.ToUpper(said), secret) {
					t.Errorf("Masked(%q) = %q", message, said)
				}

				if again := dsn.Masked(said); again != said {
					t.Errorf("Masked(%q) = %q, and that is %q", message, said, again)
				}
			}
		}

		// An argument that is like no URL.
		for _, argument := range []string{
			user + ":" + secret + password + "@" + rest,
			user + ":/" + password + secret + "@" + rest,
		} {
			if strings.Contains(argument, "://") {
				continue
			}

			for _, said := range []string{dsn.MaskedArgument(argument), dsn.MaskedArguments(fmt.Sprintf("no strategy %q", argument))} {
				if strings.Contains(strings.ToUpper(said), secret) {
					t.Errorf("of %q is said %q", argument, said)
				}
			}
		}
	})
}
