package dsn_test

import (
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
)

func TestMasked(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ message, want string }{
		// URLs.
		{`unknown command "postgres://app:s3cret@db/app" for "sqllock"`, `unknown command "postgres://app:…@db/app" for "sqllock"`},
		{`unknown command "postgres://app:s3 \"c@r/e:t@db/app" for "sqllock"`, `unknown command "postgres://app:…@db/app" for "sqllock"`},
		{"lookup postgres://u:s3@cr/et@db/app: no such host", "lookup postgres://u:…@db/app: no such host"},
		{"postgres://me@127.0.0.1:1/postgres://u:s3cret@db: refused", "postgres://me@127.0.0.1:1/postgres://u:…@db: refused"},
		{"postgres://:s3cret@db", "postgres://:…@db"},
		{`invalid argument "--dsn=postgres://app:s3cret@db" for "--x"`, `invalid argument "--dsn=postgres://app:…@db" for "--x"`},
		// DSNs of MySQL's driver.
		{`unknown command "app:s3cret@tcp(db:3306)/app"`, `unknown command "app:…@tcp(db:3306)/app"`},
		{`unknown command "app:s3 cr@et@tcp(db:3306)/app"`, `unknown command "app:…@tcp(db:3306)/app"`},
		{"command not found: app:s3cret@unix(/run/x)/app", "command not found: app:…@unix(/run/x)/app"},
		{"command not found: app:s3\"cr e\"t@/app", "command not found: app:…@/app"},
		{"app:@(db)/x", "app:…@(db)/x"},
		{"command not found: a@b/c:s3cret@tcp(db)/x", "command not found: a@b/c:…@tcp(db)/x"},
		{"command not found: mysql://app:s3cret@tcp(db)/x", "command not found: mysql://app:…@tcp(db)/x"},
		// Parameters.
		{`"host=db user=u password=s3cret"`, `"host=db user=u password=…"`},
		{`"host=db password='s3 cret' user=u"`, `"host=db password=…"`},
		{`"password = s3 cret" for "x"`, `"password = …" for "x"`},
		{"user=me database=host=db password=s3cret; again", "user=me database=host=db password=… again"},
		{"password='s3 c\\'ret' user=u", "password=… user=u"},
		{"password='s3 cret", "password=…"},
		{`password="s3 cret" user=u`, "password=… user=u"},
		{"command not found: password=s3\"c re\"t", "command not found: password=…"},
		{"postgres://db/app?user=u&password=s3&cret", "postgres://db/app?user=u&password=…"},
		{"postgres://db/app?pass%77ord=s3cret: x", "postgres://db/app?pass%77ord=… x"},
		{"postgres://db/app?%50%61SS%77%6frd%3ds3cret", "postgres://db/app?%50%61SS%77%6frd%3d…"},
		{"postgres://db/app?sslpassword=s3cret", "postgres://db/app?sslpassword=…"},
		{"passwd=s3cret", "passwd=…"},
		{"postgres://db/app?pw=s3cret", "postgres://db/app?pw=…"},
		{"postgres://db/app?sslpassphrase=s3cret", "postgres://db/app?sslpassphrase=…"},
		{"passcode=s3cret client_secret=s3cret api_key=s3cret true", "passcode=… client_secret=… api_key=… true"},
		{"command not found: sqlite:locks.db?_key=s3cret", "command not found: sqlite:locks.db?_key=…"},
		{`unknown command "sqlite:locks.db?_pragma=key('s3 cret')"`, `unknown command "sqlite:locks.db?_pragma=key(…"`},
		{"sqlite:locks.db?_pragma_rekey=s3cret", "sqlite:locks.db?_pragma_rekey=…"},
		{"MYSQL_PWD=s3cret true", "MYSQL_PWD=… true"},
		{"unknown flag: --db-password=s3cret", "unknown flag: --db-password=…"},
		{"postgres://u:p?password=s3cret@db", "postgres://u:…"},
		{"postgres://db:5432/app?user=u&password=s3@cret", "postgres://db:…"},
		{`unknown command "postgres://u@db:5432/app?password=s3@cret" for "x"`, `unknown command "postgres://u@db:…" for "x"`},
		{`unknown command "mysql://u@db/app?password=s3@(cret" for "x"`, `unknown command "mysql:…" for "x"`},
		{"a\x00b password=s3\x00cret", "a\ufffdb password=…"},

		// None of these has a secret.
		{"unknown flag: --password; see: sqllock run --help", ""},
		{"the database must be a URL: " + dsn.Forms, ""},
		{"the password stands before the host: mysql://user:password@host/db", ""},
		{"it has the socket as a parameter: mysql://user:password@/db?socket=path", ""},
		{"Error 1045 (28000): Access denied for user 'app'@'172.17.0.1' (using password: YES)", ""},
		{`FATAL: password authentication failed for user "app" (SQLSTATE 28P01)`, ""},
		{"postgres://app@db:5432/app: lock \"a\": connect: dial tcp [::1]:5432: connect: connection refused", ""},
		{"mysql://app@/app: lock \"a\": connect: dial unix /run/mysqld.sock", ""},
		{"failed to connect to `user=app database=app`: 127.0.0.1:1 (127.0.0.1): dial error", ""},
		{"tables are missing; run: sqllock migrate up --dsn mysql://app@db:3306/app", ""},
		{`lock "invoice:bob@example.com" is still held by ci:build@eu (web-1, pid 12)`, ""},
		{`lock "日本\n\x1b" is not held by anyone, and "\d" neither`, ""},
		{"sqlite:locks.db?_pragma=busy_timeout(500)&_pragma=journal_mode(WAL)", ""},
		{"Duplicate entry 'a' for key 'PRIMARY' (key=1)", ""},
		{"GRANT SELECT ON `a`.* TO `app`@`%`; token=17 lease=30s", ""},
	} {
		if c.want == "" {
			c.want = c.message
		}

		if got := dsn.Masked(c.message); got != c.want {
			t.Errorf("Masked(%s) =\n%s, want\n%s", c.message, got, c.want)
		}
	}
}

func TestMaskedArguments(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ message, want string }{
		{`unknown command "app:s3cret@db/app" for "sqllock"`, `unknown command "app:…@db/app" for "sqllock"`},
		{`unknown command "postgres://app:s3cret@db/app" for "sqllock"`, `unknown command "postgres://app:…@db/app" for "sqllock"`},
		{`unknown command "postgres://app@db/app" for "sqllock"`, `unknown command "postgres://app@db/app" for "sqllock"`},
		{`invalid argument "app:s3 cret@db/app" for "--lease"`, `invalid argument "app:…@db/app" for "--lease"`},
		{`parsing "postgres:app:s3 \n\"c://r/e@t@db/app": invalid`, `parsing "postgres:…@db/app": invalid`},
		{`no strategy "postgres//app:s3 cret@db/app"; there are`, `no strategy "postgres//app:…@db/app"; there are`},
		{`invalid argument ":s3cret/x@db:1/app"`, `invalid argument ":…@db:1/app"`},
		{`invalid argument "host=db:1 password=s3 c@ret"`, `invalid argument "host=db:…"`},
		{`unknown command "postgres://app@db:1/app"`, `unknown command "postgres://app@db:1/app"`},
		{`no strategy "postgres://app:s3cret%40db/app"`, `no strategy "postgres://app:…%40db/app"`},
		{`no strategy "postgres://app%3As3cret@db/app"`, `no strategy "postgres://app:…@db/app"`},
		{"command not found: postgres://app:s3cret%40db/app", "command not found: postgres://app:…%40db/app"},
		{"command not found: app:s3cret@db", "command not found: app:…@db"},
		{"command not found: app:/@db", "command not found: app:…@db"},
		{"the database must be a URL: " + dsn.Forms, "the database must be a URL: " + dsn.Forms},
	} {
		if got := dsn.MaskedArguments(c.message); got != c.want {
			t.Errorf("MaskedArguments(%s) = %s, want %s", c.message, got, c.want)
		}
	}
}
