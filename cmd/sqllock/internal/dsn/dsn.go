// Package dsn finds out which database the command works with and opens it.
//
// A password never leaves the package: no error, and no String, shows one.
package dsn

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// Variable is the environment variable that stands in for the flags.
const Variable = "DATABASE_URL"

// Flag is the name of the flag that gives the database, and FileFlag of the one that gives a file with the URL.
const (
	Flag     = "dsn"
	FileFlag = "dsn-file"
)

// Forms says what Parse understands, for messages and help texts.
const Forms = "postgres://user:password@host/db, mysql://user:password@host/db (mariadb:// too), tidb://user:password@host/db or sqlite:path"

// Target is a database that may be opened.
type Target struct {
	// Dialect of the database.
	Dialect databases.Dialect
	// Embedded: nobody named a database, so it is the SQLite file in the user's
	// state folder, which the command makes and migrates by itself.
	Embedded bool
	// Path is SQLite's file; empty for a server.
	Path string

	looking   bool   // it is opened by OpenToLook
	lockWait  bool   // see WithLockWait
	arguments string // flags that name it; empty if it needs none
	shown     string // without a password
	driver    string // as the driver reads it; of MySQL without the password
	password  string // MySQL's
}

// String shows the database without its password and parameters.
func (t Target) String() string { return t.shown }

// GoString keeps the password out of %#v.
func (t Target) GoString() string { return fmt.Sprintf("dsn.Target(%q)", t.shown) }

// WithLockWait has MySQL give up by itself what waits for the locks of others. There a
// statement that its client has given up goes on waiting, and then does its work.
func (t Target) WithLockWait() Target {
	t.lockWait = true

	return t
}

// MigrateCommand is what to run for the database to have its tables.
func (t Target) MigrateCommand() string {
	return strings.TrimSpace("sqllock migrate up " + t.arguments)
}

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shellWord is a text as one word of a shell.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}

	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Parse reads a database URL. The schemes are postgres, postgresql, mysql,
// mariadb, tidb, sqlite and file.
func Parse(text string) (Target, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	scheme = strings.ToLower(scheme)
	path, query, _ := strings.Cut(rest, "?")

	switch scheme {
	case "sqlite":
		return parseSQLite(strings.TrimPrefix(path, "//"), query)
	case "file":
		return parseSQLite(withoutHost(path), query)
	case "postgres", "postgresql":
		return parseURL(text, func(u *url.URL) (Target, error) { return parsePostgres(u, scheme+":"+rest) })
	case "mysql", "mariadb":
		return parseURL(text, func(u *url.URL) (Target, error) { return parseMySQL(u, databases.MySQL, "3306") })
	case "tidb":
		return parseURL(text, func(u *url.URL) (Target, error) { return parseMySQL(u, databases.TiDB, "4000") })
	default:
		// What stands before the colon may be a user's name and what follows the
		// password, so neither is shown.
		return Target{}, errors.New("the database must be a URL: " + Forms)
	}
}

func parseURL(text string, parse func(*url.URL) (Target, error)) (Target, error) {
	u, err := url.Parse(text)
	if err != nil || misread(u) {
		// The error of net/url quotes what it could not read, which is often the
		// password.
		return Target{}, errors.New("the database URL cannot be read; it is scheme://user:password@host:port/db, and special characters in user, " +
			"password, name and parameters must be percent-encoded (@ is %40, / is %2F, ? is %3F, # is %23, ; is %3B, % is %25)")
	}

	return parse(u)
}

// misread says whether a URL has, outside its place, what is left of a password
// with a character that should have been percent-encoded: in app:1/x@db the host
// is app, and the path would be shown. Or it has parameters of which net/url would
// leave some out without a word: tls=true;timeout=5s would be a connection without TLS.
func misread(u *url.URL) bool {
	_, err := url.ParseQuery(u.RawQuery)
	bare := slices.ContainsFunc(strings.Split(u.RawQuery, "&"), func(p string) bool { return p != "" && !strings.Contains(p, "=") })

	return err != nil || bare || strings.ContainsAny(u.EscapedPath(), "@:&=") || strings.ContainsAny(u.RawQuery, "?@") || u.Fragment != ""
}

// shown is the URL without password and parameters.
func shown(u *url.URL) string {
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.User != nil {
		bare.User = url.User(u.User.Username())
	}

	return bare.String()
}

// hasPassword says whether a database URL has a password in it.
func hasPassword(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false // nor can it be used
	}

	_, set := u.User.Password()
	names := slices.Collect(maps.Keys(u.Query()))

	return set || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(strings.ToLower(name), "password") })
}

// IsDatabase says whether a text that should be a lock's name is a database with who connects to it: whoever gave it forgot
// a flag, and everybody would see the name.
func IsDatabase(text string) bool {
	target, err := Parse(text)

	return err == nil && target.Path == "" && (strings.Contains(target.shown, "@") || hasPassword(text))
}
