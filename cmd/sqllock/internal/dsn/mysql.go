package dsn

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/tidb"
)

// parseMySQL turns the URL into the form of go-sql-driver,
// user:password@tcp(host:port)/db?parameters. Parameters are that driver's,
// and socket=path, which takes the place of host and port.
func parseMySQL(u *url.URL, dialect databases.Dialect, port string) (Target, error) {
	config := driver.NewConfig()
	config.User = u.User.Username()
	config.DBName = strings.TrimPrefix(u.Path, "/")

	if config.DBName == "" {
		return Target{}, fmt.Errorf("the URL names no database: %s://user:password@host/db", dialect)
	}

	parameters := u.Query()
	if parameters.Has("password") {
		// The driver would set a variable of the session.
		return Target{}, fmt.Errorf("the password stands before the host: %s://user:password@host/db", dialect)
	}

	config.Net, config.Addr = "tcp", net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), port))
	if socket := parameters.Get("socket"); socket != "" {
		parameters.Del("socket")
		config.Net, config.Addr = "unix", socket
	}

	// One round trip instead of two for each statement that package mysql does not
	// send; any value of the user's wins.
	if !parameters.Has("interpolateParams") && quotable(parameters) {
		parameters.Set("interpolateParams", "true")
	}

	if !parameters.Has("timeout") {
		parameters.Set("timeout", connectTimeout.String())
	}

	t := Target{Dialect: dialect, shown: shown(u), driver: config.FormatDSN() + "?" + parameters.Encode()}
	t.password, _ = u.User.Password()

	_, err := t.mysqlConfig()

	return t, err
}

// quotable says whether the driver, which quotes by bytes, does so safely: in no character of UTF-8, its own choice, is a byte
// a quote or a backslash, as in those of gbk or sjis. Locks need it not, their text is in hexadecimal digits; whatever else
// may be sent does.
func quotable(parameters url.Values) bool {
	for name := range parameters {
		if name := strings.ToLower(name); name == "charset" || name == "collation" || strings.HasPrefix(name, "character_set_") {
			return false
		}
	}

	return true
}

func (t Target) mysqlConfig() (*driver.Config, error) {
	config, err := driver.ParseDSN(t.driver)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL: %w", err)
	}

	config.Passwd = t.password
	// goose reads the times of its version table.
	config.ParseTime = true
	// The driver would print broken connections to stderr by itself; they come
	// back as errors too.
	config.Logger = &driver.NopLogger{}

	if t.lockWait {
		// What the URL says wins.
		waits := map[string]string{"innodb_lock_wait_timeout": lockWaitSeconds, "lock_wait_timeout": lockWaitSeconds}
		maps.Copy(waits, config.Params)
		config.Params = waits
	}

	return config, nil
}

// lockWaitSeconds is how long a statement of MySQL waits for a row or a table.
const lockWaitSeconds = "5"

// patient bounds the whole of connecting. The driver's timeout ends when the
// server has accepted the connection, and it may never greet.
type patient struct {
	sqldriver.Connector

	limit time.Duration
}

// Connect connects.
func (p patient) Connect(ctx context.Context) (sqldriver.Conn, error) {
	if p.limit > 0 {
		bounded, cancel := context.WithTimeout(ctx, p.limit)
		defer cancel()

		ctx = bounded
	}

	return p.Connector.Connect(ctx)
}

func openMySQL(t Target) (*Database, error) {
	config, err := t.mysqlConfig()
	if err != nil {
		return nil, err
	}

	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", t, err)
	}

	std := sql.OpenDB(patient{connector, config.Timeout})
	// Of many that wait each keeps one connection, not two.
	std.SetMaxIdleConns(1)

	var locks databases.DB = mysql.New(std)
	if t.Dialect == databases.TiDB {
		locks = tidb.New(std)
	}

	return &Database{Target: t, Locks: locks, SQL: std, Driver: config, close: std.Close}, nil
}
