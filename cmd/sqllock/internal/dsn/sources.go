package dsn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// FileFlag is the name of the flag that gives a file with the URL.
const FileFlag = "dsn-file"

// Resolve takes the database from the flags, else from the environment, which is
// looked up as by os.LookupEnv, else the embedded file.
func Resolve(flag, file string, lookup func(string) (string, bool)) (Target, error) {
	url, set := lookup(Variable)

	switch {
	case flag != "" && file != "":
		return Target{}, fmt.Errorf("--%s and --%s cannot be used together", Flag, FileFlag)
	case flag != "":
		t, err := named("--"+Flag, flag)
		t.arguments = "--" + Flag + " " + shellWord(withParameters(t.shown, flag))

		return t, err
	case file != "":
		return fromFile(file)
	case url != "":
		return named(Variable, url)
	case set:
		// A script's own variable was not set. With the embedded file each machine
		// would have the lock.
		return Target{}, errors.New(Variable + " is empty; " + instead)
	default:
		return fromVariables(lookup)
	}
}

// instead is what to do if a file of this machine is what was meant.
const instead = "for locks within this machine unset it, or give --" + Flag + " sqlite:path"

func named(source, text string) (Target, error) {
	t, err := Parse(text)
	if err != nil {
		return Target{}, fmt.Errorf("%s: %w", source, err)
	}

	return t, nil
}

// likeURL is what may be a database URL or a DSN of a driver, and passwordLike
// what may have a password in it, whatever it is.
var (
	likeURL      = regexp.MustCompile(`(?i)^(sqlite|file):|://|` + passwordLike.String())
	passwordLike = regexp.MustCompile(`(?is):.*@|@(tcp|unix)?\(|` + secretName.String())
)

// What names a database, with a user or a password, and no lock.
var (
	serverURL   = regexp.MustCompile(`(?is)^(?:postgres|postgresql|mysql|mariadb|sqlite)://(?:.*@|.*` + secretName.String() + `)`)
	driverDSN   = regexp.MustCompile(`(?s)^[^/]*@(?:tcp|unix)\(`)
	libpqString = regexp.MustCompile(`(?:^|\s)(?:host|hostaddr|port|user|dbname|sslmode|service)\s*=`)
	libpqSecret = regexp.MustCompile(`(?:^|\s)password\s*=`)
)

// IsDatabase says whether a text that should be a lock's name says which database, with
// who connects: it may have a password in it, and whoever gave it forgot a flag.
func IsDatabase(text string) bool {
	return serverURL.MatchString(text) || driverDSN.MatchString(text) ||
		libpqString.MatchString(text) && libpqSecret.MatchString(text)
}

// fromFile reads the URL from a file, where it is seen by those who may read
// it, and not in the list of processes.
func fromFile(file string) (Target, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the user's own

	switch {
	case err != nil && likeURL.MatchString(file):
		// The password is in it, so it is not shown.
		return Target{}, fmt.Errorf("--%s takes a file with the URL, and was given a URL; use --%s or %s", FileFlag, Flag, Variable)
	case err != nil:
		return Target{}, fmt.Errorf("--%s: %w", FileFlag, err)
	}

	url := strings.TrimSpace(string(text))

	switch {
	case url == "":
		return Target{}, fmt.Errorf("--%s: %s is empty", FileFlag, file)
	case strings.ContainsAny(url, "\r\n"):
		return Target{}, fmt.Errorf("--%s: %s has more lines than the URL's", FileFlag, file)
	}

	t, err := named("--"+FileFlag, url)
	t.arguments = "--" + FileFlag + " " + shellWord(file)

	return t, err
}

// fromVariables takes the variables that the databases' own programs read.
func fromVariables(lookup func(string) (string, bool)) (Target, error) {
	getenv := func(name string) string {
		value, _ := lookup(name)

		return value
	}

	pg := getenv("PGHOST") != "" || getenv("PGSERVICE") != "" || getenv("PGDATABASE") != ""
	my := getenv("MYSQL_HOST") != ""

	switch {
	case pg && my:
		return Target{}, errors.New("PG* and MYSQL_* variables are set; say which database with --" + Flag + " or " + Variable)
	case pg:
		if err := urlIn(getenv, "PGHOST", "PGUSER", "PGDATABASE"); err != nil {
			return Target{}, err
		}

		return libpq()
	case my:
		if err := urlIn(getenv, "MYSQL_HOST", "MYSQL_USER", "MYSQL_DATABASE"); err != nil {
			return Target{}, err
		}

		return mysqlVariables(getenv)
	default:
		if err := leftOver(lookup); err != nil {
			return Target{}, err
		}

		return embedded(getenv)
	}
}

// urlIn is an error if one of the variables has a URL where a part of it belongs. What
// is shown of the database would have the password in it, with escapes.
func urlIn(getenv func(string) string, names ...string) error {
	for _, name := range names {
		if likeURL.MatchString(getenv(name)) {
			return fmt.Errorf("%s has a URL or a DSN in it; a URL goes into %s", name, Variable)
		}
	}

	return nil
}

// leftOver is an error if a variable says that a server is meant, and none says
// which.
func leftOver(lookup func(string) (string, bool)) error {
	for _, server := range []struct {
		which   string
		names   []string // name the server, also if empty
		details []string
	}{
		{
			"PGHOST, PGSERVICE or PGDATABASE",
			[]string{"PGHOST", "PGSERVICE", "PGDATABASE"},
			[]string{"PGHOSTADDR", "PGPORT", "PGUSER", "PGPASSWORD"},
		},
		// Without MYSQL_PORT, which Kubernetes sets for a service of that name.
		{
			"MYSQL_HOST",
			[]string{"MYSQL_HOST"},
			[]string{"MYSQL_UNIX_PORT", "MYSQL_TCP_PORT", "MYSQL_DATABASE", "MYSQL_USER", "MYSQL_PASSWORD", "MYSQL_PWD"},
		},
	} {
		for _, name := range server.names {
			if _, set := lookup(name); set {
				return fmt.Errorf("%s is empty; %s", name, instead)
			}
		}

		for _, name := range server.details {
			if value, _ := lookup(name); value != "" {
				return fmt.Errorf("%s is set, but no server is named: set %s too; %s", name, server.which, instead)
			}
		}
	}

	return nil
}

// libpq leaves the reading to pgx, which knows the variables, service files and
// .pgpass (https://www.postgresql.org/docs/current/libpq-envars.html).
func libpq() (Target, error) {
	t := Target{Dialect: databases.Postgres, driver: "postgres://"}

	config, err := t.postgresConfig()
	if err != nil {
		return Target{}, fmt.Errorf("PG* variables: %w", err)
	}

	u := url.URL{Scheme: "postgres", Path: "/" + config.ConnConfig.Database}

	if config.ConnConfig.User != "" {
		u.User = url.User(config.ConnConfig.User)
	}

	// A folder is that of a socket.
	if host := config.ConnConfig.Host; strings.HasPrefix(host, "/") {
		u.RawQuery = "host=" + host
	} else {
		u.Host = net.JoinHostPort(host, fmt.Sprint(config.ConnConfig.Port))
	}

	t.shown = u.String()

	return t, nil
}

// mysqlVariables are those that MySQL's programs and its container image read
// (https://dev.mysql.com/doc/refman/9.7/en/environment-variables.html).
func mysqlVariables(getenv func(string) string) (Target, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if value := getenv(name); value != "" {
				return value
			}
		}

		return ""
	}

	u := &url.URL{Scheme: "mysql", Host: getenv("MYSQL_HOST"), Path: "/" + getenv("MYSQL_DATABASE")}
	if port := first("MYSQL_TCP_PORT", "MYSQL_PORT"); port != "" {
		u.Host = net.JoinHostPort(u.Host, port)
	}

	if socket := getenv("MYSQL_UNIX_PORT"); socket != "" && getenv("MYSQL_HOST") == "localhost" {
		u.RawQuery = url.Values{"socket": {socket}}.Encode()
	}

	if user, password := getenv("MYSQL_USER"), first("MYSQL_PASSWORD", "MYSQL_PWD"); password != "" {
		u.User = url.UserPassword(user, password)
	} else if user != "" {
		u.User = url.User(user)
	}

	t, err := parseMySQL(u)
	if err != nil {
		return Target{}, fmt.Errorf("MYSQL_* variables: %w", err)
	}

	return t, nil
}
