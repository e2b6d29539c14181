// Package dsn finds out which database the command works with and opens it.
//
// A password never leaves the package: no error, and no String, shows one.
package dsn

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// Variable is the environment variable that stands in for the flag.
const Variable = "DATABASE_URL"

// Flag is the name of the flag that gives the database.
const Flag = "dsn"

// Forms says what Parse understands, for messages and help texts.
const Forms = "postgres://user:password@host/db, mysql://user:password@host/db (mariadb:// too) or sqlite:path"

// Target is a database that may be opened.
type Target struct {
	// Dialect of the database.
	Dialect databases.Dialect
	// Embedded: nobody named a database, so it is the SQLite file in the user's
	// state folder, which the command makes and migrates by itself.
	Embedded bool
	// Path is SQLite's file; empty for a server.
	Path string

	flag    bool   // given by the flag
	shown   string // without a password
	driver  string // as the driver reads it, with the password
	secrets []string
}

// String shows the database without its password and parameters.
func (t Target) String() string { return t.shown }

// GoString keeps the password out of %#v.
func (t Target) GoString() string { return fmt.Sprintf("dsn.Target(%q)", t.shown) }

// MigrateCommand is what to run for the database to have its tables.
func (t Target) MigrateCommand() string {
	if !t.flag {
		return "sqllock migrate up"
	}

	return "sqllock migrate up --" + Flag + " " + t.shown
}

// Resolve takes the database from the flag, else from DATABASE_URL, else the
// embedded file.
func Resolve(flag string, getenv func(string) string) (Target, error) {
	if flag != "" {
		t, err := named("--"+Flag, flag)
		t.flag = true

		return t, err
	}

	if text := getenv(Variable); text != "" {
		return named(Variable, text)
	}

	return embedded(getenv)
}

func named(source, text string) (Target, error) {
	t, err := Parse(text)
	if err != nil {
		return Target{}, fmt.Errorf("%s: %w", source, err)
	}

	return t, nil
}

// Parse reads a database URL. The schemes are postgres, postgresql, mysql,
// mariadb, sqlite and file.
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
	}

	// What stands before the colon may be a user's name and what follows the
	// password, so neither is shown.
	if !found || !strings.Contains(text, "://") {
		return Target{}, errors.New("the database must be a URL: " + Forms)
	}

	return Target{}, fmt.Errorf("no database %q; there are %s", scheme+"://", Forms)
}

func parseURL(text string, parse func(*url.URL) (Target, error)) (Target, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The error of net/url quotes what it could not read, which is often the
		// password.
		return Target{}, errors.New("the database URL can not be read; " +
			"special characters in user and password must be percent-encoded (@ is %40, / is %2F)")
	}

	return parse(u)
}

// shown is the URL without password and parameters.
func shown(u *url.URL) string {
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		bare.User = url.User(u.User.Username())
	}

	return bare.String()
}

// secretsOf lists what no message may show.
func secretsOf(u *url.URL) []string {
	var secrets []string

	add := func(secret string) {
		if secret != "" {
			secrets = append(secrets, secret, url.QueryEscape(secret), url.PathEscape(secret))
		}
	}

	if password, ok := u.User.Password(); ok {
		add(password)
	}

	for key, values := range u.Query() {
		if strings.Contains(strings.ToLower(key), "password") {
			for _, value := range values {
				add(value)
			}
		}
	}

	return secrets
}

// scrub makes an error out of another's text without the secrets in it. It
// does not wrap: what is wrapped can be printed.
func scrub(err error, secrets []string) error {
	text := err.Error()

	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}

	return errors.New(text)
}
