// Package dsn finds out which database the command works with and opens it.
//
// A password never leaves the package: no error, and no String, shows one.
package dsn

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// Variable is the environment variable that stands in for the flags.
const Variable = "DATABASE_URL"

// Flag is the name of the flag that gives the database.
const Flag = "dsn"

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
	arguments string // flags that name it, without a password; empty if it needs none
	shown     string // without a password
	driver    string // as the driver reads it, without the password
	password  string // never part of a text that is parsed, and so of no error
}

// String shows the database without its password and parameters.
func (t Target) String() string { return t.shown }

// WithLockWait has MySQL give up by itself what waits for the locks of others. There a
// statement that its client has given up goes on waiting, and then does its work.
func (t Target) WithLockWait() Target {
	t.lockWait = true

	return t
}

// GoString keeps the password out of %#v.
func (t Target) GoString() string { return fmt.Sprintf("dsn.Target(%q)", t.shown) }

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

// fileKey is a parameter with the key of an encrypted SQLite file.
var fileKey = regexp.MustCompile(`(?i)^(?:_pragma=\s*)?_?(?:hex|text|re)*key\s*[=(]`)

// withParameters is what is shown of a database URL, with those of its parameters that
// are no passwords: the tables' schema may be one.
func withParameters(shown, text string) string {
	_, query, _ := strings.Cut(text, "?")

	var kept []string

	for parameter := range strings.SplitSeq(query, "&") {
		plain, err := url.QueryUnescape(parameter)
		if err == nil && parameter != "" && !secretName.MatchString(plain) && !fileKey.MatchString(plain) {
			kept = append(kept, parameter)
		}
	}

	if len(kept) == 0 {
		return shown
	}

	return shown + "?" + strings.Join(kept, "&")
}

// Parse reads a database URL. The schemes are postgres, postgresql, mysql,
// mariadb, tidb, sqlite and file.
func Parse(text string) (Target, error) {
	scheme, rest, found := strings.Cut(text, ":")

	switch strings.ToLower(scheme) {
	case "sqlite":
		return parseSQLite(strings.TrimPrefix(rest, "//"))
	case "file":
		return parseSQLite(withoutHost(rest))
	case "postgres", "postgresql":
		return parseURL(text, parsePostgres)
	case "mysql", "mariadb":
		return parseURL(text, parseMySQL)
	case "tidb":
		return parseURL(text, parseTiDB)
	}

	// What stands before the colon may be a user's name and what follows the
	// password, so neither is shown.
	if !found || !strings.Contains(text, "://") {
		return Target{}, errors.New("the database must be a URL: " + Forms)
	}

	return Target{}, fmt.Errorf("sqllock knows no database %q; there are %s", scheme+"://", Forms)
}

func parseURL(text string, parse func(*url.URL) (Target, error)) (Target, error) {
	if err := misspelled(text); err != nil {
		return Target{}, err
	}

	u, err := url.Parse(text)
	if err != nil || misread(u) {
		// The error of net/url quotes what it could not read, which is often the
		// password.
		return Target{}, errors.New("the database URL cannot be read; special characters in user, password, " +
			"name and parameters must be percent-encoded (@ is %40, / is %2F, ? is %3F, # is %23, ; is %3B, % is %25)")
	}

	return parse(u)
}

// misspelled is an error of a host that is none in a URL, for which escapes would
// be the wrong advice. It shows nothing of the text: a password whose / ends the
// host looks like a port.
func misspelled(text string) error {
	_, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest+"/", "/?#")
	authority, behind := rest[:end], rest[end:]
	host := authority[strings.LastIndexByte(authority, '@')+1:]

	switch {
	case strings.HasPrefix(host, "tcp("):
		return errors.New("the database URL has host:port in place of tcp(host:port)")
	case strings.HasPrefix(host, "unix("):
		return errors.New("the database URL has the socket as a parameter: mysql://user:password@/db?socket=path")
	case strings.Contains(behind, "@"):
		return nil // the host may be a part of the password
	}

	port := host[strings.LastIndexByte(host, ']')+1:]
	if at := strings.LastIndexByte(port, ':'); at >= 0 && strings.Trim(port[at+1:], "0123456789") != "" {
		return errors.New("the port in the database URL is no number")
	}

	return nil
}

// misread says whether a URL has, outside its place, what is left of a password
// with a character that should have been percent-encoded: in app:1/x@db the host
// is app, and the path would be shown. Or it has parameters of which net/url would
// leave some out without a word: tls=true;timeout=5s would be a connection without TLS.
func misread(u *url.URL) bool {
	if _, err := url.ParseQuery(u.RawQuery); err != nil {
		return true
	}

	for parameter := range strings.SplitSeq(u.RawQuery, "&") {
		if parameter != "" && !strings.Contains(parameter, "=") {
			return true
		}
	}

	return strings.ContainsAny(u.EscapedPath(), "@:&=") || strings.ContainsAny(u.RawQuery, "?@") || u.Fragment != ""
}

// shown is the URL without password and parameters.
func shown(u *url.URL) string {
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.User != nil {
		// What follows a colon that was encoded is a password, too, by its looks.
		name, _, _ := strings.Cut(u.User.Username(), ":")
		bare.User = url.User(name)
	}

	return bare.String()
}
