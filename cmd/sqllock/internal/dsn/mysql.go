package dsn

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
)

// parseMySQL turns the URL into the form of go-sql-driver,
// user:password@tcp(host:port)/db?parameters. Parameters are that driver's,
// and socket=path, which takes the place of host and port.
func parseMySQL(u *url.URL) (Target, error) {
	config := driver.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.DBName = strings.TrimPrefix(u.Path, "/")

	if config.DBName == "" {
		return Target{}, errors.New("the URL names no database: mysql://user:password@host/db")
	}

	parameters := u.Query()
	config.Net, config.Addr = mysqlAddress(u, parameters)

	// One round trip for each statement instead of two; any value of the user's
	// wins.
	if !parameters.Has("interpolateParams") {
		parameters.Set("interpolateParams", "true")
	}

	if !parameters.Has("timeout") {
		parameters.Set("timeout", connectTimeout.String())
	}

	text := config.FormatDSN()
	separator := "?"

	if strings.Contains(text[strings.LastIndexByte(text, '/'):], "?") {
		separator = "&"
	}

	t := Target{
		Dialect: databases.MySQL, shown: shown(u), driver: text + separator + parameters.Encode(), secrets: secretsOf(u),
	}
	_, err := t.mysqlConfig()

	return t, err
}

func mysqlAddress(u *url.URL, parameters url.Values) (network, address string) {
	if socket := parameters.Get("socket"); socket != "" {
		parameters.Del("socket")

		return "unix", socket
	}

	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "127.0.0.1"
	}

	if port == "" {
		port = "3306"
	}

	return "tcp", net.JoinHostPort(host, port)
}

func (t Target) mysqlConfig() (*driver.Config, error) {
	config, err := driver.ParseDSN(t.driver)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL: %w", scrub(err, t.secrets))
	}

	// goose reads the times of its version table.
	config.ParseTime = true
	// The driver would print broken connections to stderr by itself; they come
	// back as errors too.
	config.Logger = &driver.NopLogger{}

	return config, nil
}

func openMySQL(t Target) (*Database, error) {
	config, err := t.mysqlConfig()
	if err != nil {
		return nil, err
	}

	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", t, scrub(err, t.secrets))
	}

	std := sql.OpenDB(connector)
	// Of many that wait each keeps one connection, not two.
	std.SetMaxIdleConns(1)

	return &Database{Target: t, Locks: mysql.New(std), SQL: std, Driver: config, close: std.Close}, nil
}
