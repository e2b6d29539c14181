package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// maxConnections is what every server that is started here allows. MySQL's and MariaDB's default is 151,
// PostgreSQL's 100; the tests open more, from many packages at a time.
const maxConnections = "500"

// Without waits for the disk, which decide nothing in a test: what a server that is killed has written stays, and no
// test takes the machine's power away. With them, on a machine with a slow disk, each new database takes PostgreSQL ten
// seconds.
func waitsForDisk() bool { return os.Getenv("SQLLOCK_TEST_DURABLE") != "" }

func postgresOptions() []string {
	options := []string{"-c", "max_connections=" + maxConnections, "-c", "max_prepared_transactions=10"}
	if !waitsForDisk() {
		options = append(options, "-c", "fsync=off")
	}

	return options
}

// mysqlOptions are MariaDB's, too.
func mysqlOptions() []string {
	options := []string{"--max-connections=" + maxConnections}
	if !waitsForDisk() {
		options = append(options, "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0")
	}

	return options
}

// engine is what the ways of getting a server need to know about one database.
type engine struct {
	name    string // as in SQLLOCK_TEST_DATABASES
	product string // as the server calls itself
	image   string // the container image, unless the environment names another
	example string // a DSN, for messages

	port             string // in the container
	data             string // the data folder in the container
	containerEnv     func(password string) map[string]string
	containerOptions []string

	// apt finds the packages that hold the server, as a pattern of apt-cache search --names-only.
	apt string

	locate func(ctx context.Context) (installation, error)

	dsn       func(address, password string) string
	normalize func(dsn string) (string, error)
	open      func(dsn string) (*sql.DB, error)
}

func (e engine) dsnVariable() string   { return "SQLLOCK_TEST_" + strings.ToUpper(e.name) }
func (e engine) imageVariable() string { return e.dsnVariable() + "_IMAGE" }

func engines() map[string]engine {
	return map[string]engine{
		"postgres": {
			name:             "postgres",
			product:          "PostgreSQL",
			image:            "postgres:17",
			example:          "postgres://user:password@host:5432/database",
			port:             "5432/tcp",
			data:             "/var/lib/postgresql/data",
			containerEnv:     func(password string) map[string]string { return map[string]string{"POSTGRES_PASSWORD": password} },
			containerOptions: postgresOptions(),
			apt:              "^postgresql$",
			locate:           locatePostgres,
			dsn:              postgresDSN,
			normalize:        normalizePostgres,
			open:             openPostgres,
		},
		"mysql": {
			name:             "mysql",
			product:          "MySQL",
			image:            "mysql:9.7",
			example:          "user:password@tcp(host:3306)/database",
			port:             "3306/tcp",
			data:             "/var/lib/mysql",
			containerEnv:     mysqlContainerEnv("MYSQL"),
			containerOptions: mysqlOptions(),
			apt:              "^mysql-server-core(-[0-9.]+)?$",
			locate:           locateMySQL,
			dsn:              mysqlDSN,
			normalize:        normalizeMySQL,
			open:             openMySQL,
		},
		"mariadb": {
			name:             "mariadb",
			product:          "MariaDB",
			image:            "mariadb:11.8",
			example:          "user:password@tcp(host:3306)/database",
			port:             "3306/tcp",
			data:             "/var/lib/mysql",
			containerEnv:     mysqlContainerEnv("MARIADB"),
			containerOptions: mysqlOptions(),
			apt:              "^mariadb-(server|client)-core(-[0-9.]+)?$",
			locate:           locateMariaDB,
			dsn:              mysqlDSN,
			normalize:        normalizeMySQL,
			open:             openMySQL,
		},
		"tidb": {
			name:      "tidb",
			product:   "TiDB",
			example:   "user:password@tcp(host:4000)/database",
			normalize: normalizeMySQL,
			open:      openMySQL,
		},
	}
}

func mysqlContainerEnv(prefix string) func(string) map[string]string {
	return func(password string) map[string]string {
		return map[string]string{prefix + "_ROOT_PASSWORD": password, prefix + "_DATABASE": "sqllock"}
	}
}

func postgresDSN(address, password string) string {
	return "postgres://postgres:" + password + "@" + address + "/postgres?sslmode=disable"
}

func mysqlDSN(address, password string) string {
	return "root:" + password + "@tcp(" + address + ")/sqllock"
}

func normalizePostgres(dsn string) (string, error) {
	_, err := pgx.ParseConfig(dsn)

	return dsn, err
}

// normalizeMySQL returns dsn as the driver wants it; it may also be a URL, as other tools have it.
func normalizeMySQL(dsn string) (string, error) {
	if !strings.HasPrefix(dsn, "mysql://") && !strings.HasPrefix(dsn, "mariadb://") {
		_, err := mysql.ParseDSN(dsn)

		return dsn, err
	}

	parsed, err := url.Parse(dsn)
	if err != nil {
		// Not %w: the text of url's error holds the whole DSN, with its password.
		return "", errors.New("not a valid URL")
	}

	port := parsed.Port()
	if port == "" {
		port = "3306"
	}

	config := mysql.NewConfig()
	config.User = parsed.User.Username()
	config.Passwd, _ = parsed.User.Password()
	config.Net = "tcp"
	config.Addr = net.JoinHostPort(parsed.Hostname(), port)
	config.DBName = strings.TrimPrefix(parsed.Path, "/")

	converted := config.FormatDSN()
	if parsed.RawQuery != "" {
		converted += separator(converted) + parsed.RawQuery
	}

	_, err = mysql.ParseDSN(converted)

	return converted, err
}

func separator(dsn string) string {
	if strings.Contains(dsn[strings.LastIndexByte(dsn, '/'):], "?") {
		return "&"
	}

	return "?"
}

func openPostgres(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}

	return stdlib.OpenDB(*config), nil
}

// quickLogins has PostgreSQL hash the password 1000 times where it does so 4096 times by default: a client has to do
// the same for each of the tests' many connections, and with the race detector that takes longer than a dozen
// statements. lib/pq takes no less than four digits. Versions before 16 have no such setting.
func quickLogins(ctx context.Context, dsn, password string) error {
	db, err := openPostgres(dsn)
	if err != nil {
		return err
	}
	defer db.Close()

	_, err = db.ExecContext(ctx, `DO $do$ BEGIN
    IF current_setting('server_version_num')::int >= 160000 THEN
        SET LOCAL scram_iterations = 1000;
        ALTER ROLE CURRENT_USER PASSWORD '`+password+`';
    END IF;
END $do$`)

	return err
}

func openMySQL(dsn string) (*sql.DB, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}

	// The driver prints each failed connection, and a server that starts refuses some.
	config.Logger = &mysql.NopLogger{}

	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}

	return sql.OpenDB(connector), nil
}

// version asks the server that answers at dsn what it is, and fails if it is another product.
func (e engine) version(ctx context.Context, dsn string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	db, err := e.open(dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()

	var text string
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&text); err != nil {
		return "", err
	}

	product, version := parseVersion(text)
	if product != e.product {
		return "", wrongProductError(fmt.Sprintf("it is %s %s", product, version))
	}

	return product + " " + version, nil
}

// wrongProductError is an answer, so there is no point in asking again.
type wrongProductError string

func (e wrongProductError) Error() string { return string(e) }

// parseVersion reads the answers to SELECT version(): "PostgreSQL 17.11 (Debian …) on x86_64…",
// "11.8.6-MariaDB-…", "8.0.11-TiDB-v8.5.3", "9.7.0" or "8.0.43-0ubuntu0.24.04.1".
func parseVersion(text string) (product, version string) {
	if rest, ok := strings.CutPrefix(text, "PostgreSQL "); ok {
		version, _, _ = strings.Cut(rest, " ")

		return "PostgreSQL", version
	}

	version, _, _ = strings.Cut(text, "-")
	if _, release, ok := strings.Cut(text, "-TiDB-"); ok {
		return "TiDB", strings.TrimPrefix(release, "v")
	}

	if strings.Contains(text, "MariaDB") {
		return "MariaDB", version
	}

	return "MySQL", version
}

// waitReady waits until the server at dsn lets clients in. ended returns an error when there is no use in
// waiting any longer, because the server is gone.
func (e engine) waitReady(ctx context.Context, dsn string, ended func() error) (version string, err error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()

	for {
		version, err = e.version(ctx, dsn)
		if err == nil {
			return version, nil
		}

		var wrong wrongProductError
		if errors.As(err, &wrong) {
			return "", err
		}

		if endedErr := ended(); endedErr != nil {
			return "", endedErr
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("not ready (%w): %w", context.Cause(ctx), err)
		}
	}
}
