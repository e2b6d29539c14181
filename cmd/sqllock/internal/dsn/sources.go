package dsn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// Resolve takes the database from the flags, else from the environment, which is
// looked up as by os.LookupEnv, else the embedded file.
func Resolve(flag, file string, lookup func(string) (string, bool)) (Target, error) {
	variable, set := lookup(Variable)
	getenv := func(name string) string {
		value, _ := lookup(name)

		return value
	}

	switch {
	case flag != "" && file != "":
		return Target{}, fmt.Errorf("--%s and --%s cannot be used together", Flag, FileFlag)
	case hasPassword(flag):
		return Target{}, fmt.Errorf("--%s has a password, which all users of this machine would see; put the URL into %s, or into a file for --%s",
			Flag, Variable, FileFlag)
	case flag != "":
		return named("--"+Flag, flag, "--"+Flag+" "+shellWord(flag))
	case file != "":
		return fromFile(file)
	case variable != "":
		return named(Variable, variable, "")
	case set:
		// A script's own variable was not set. With the embedded file each machine
		// would have the lock.
		return Target{}, errors.New(Variable + " is empty; for locks within this machine unset it, or give --" + Flag + " sqlite:path")
	case getenv("PGHOST") != "" || getenv("PGSERVICE") != "" || getenv("PGDATABASE") != "":
		return libpq()
	case getenv("MYSQL_HOST") != "":
		return Target{}, errors.New("MYSQL_HOST is not read; put mysql://user:password@host/database into " + Variable)
	default:
		return embedded(getenv)
	}
}

func named(source, text, arguments string) (Target, error) {
	t, err := Parse(text)
	if err != nil {
		return Target{}, fmt.Errorf("%s: %w", source, err)
	}

	t.arguments = arguments

	return t, nil
}

// fromFile reads the URL from a file, where it is seen by those who may read
// it, and not in the list of processes.
func fromFile(file string) (Target, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the user's own
	url := strings.TrimSpace(string(text))

	switch {
	case err != nil && strings.Contains(file, ":"):
		// There may be a password in it, so it is not shown.
		return Target{}, fmt.Errorf("--%s takes a file with the URL, and was given a URL; use --%s or %s", FileFlag, Flag, Variable)
	case err != nil:
		return Target{}, fmt.Errorf("--%s: %w", FileFlag, err)
	case url == "":
		return Target{}, fmt.Errorf("--%s: %s is empty", FileFlag, file)
	case strings.ContainsAny(url, "\r\n"):
		return Target{}, fmt.Errorf("--%s: %s has more lines than the URL's", FileFlag, file)
	}

	return named("--"+FileFlag, url, "--"+FileFlag+" "+shellWord(file))
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

// embedded is the file that is used when nobody names a database.
func embedded(getenv func(string) string) (Target, error) {
	folder, err := stateFolder(runtime.GOOS, getenv)
	if err != nil {
		return Target{}, err
	}

	t := sqliteFile(filepath.Join(folder, "locks.db"), url.Values{})
	t.Embedded = true

	return t, nil
}

// stateFolder is where programs keep what is neither configuration nor cache
// (https://specifications.freedesktop.org/basedir-spec/latest/).
func stateFolder(system string, getenv func(string) string) (string, error) {
	if folder := getenv("XDG_STATE_HOME"); filepath.IsAbs(folder) {
		return filepath.Join(folder, "sqllock"), nil
	}

	if folder := getenv("LocalAppData"); system == "windows" && folder != "" {
		return filepath.Join(folder, "sqllock"), nil
	}

	home := getenv("HOME")

	if home == "" {
		var err error

		// Where HOME is not set, as under systemd, there may be none at all.
		if home, err = os.UserHomeDir(); err != nil {
			return "", errors.New("no database is named, and there is no home folder for a file of your own: " +
				"give --" + Flag + " or set " + Variable)
		}
	}

	if system == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "sqllock"), nil
	}

	return filepath.Join(home, ".local", "state", "sqllock"), nil
}
