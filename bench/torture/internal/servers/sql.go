package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/test/servers"
)

// startSQL brings up PostgreSQL or MySQL: one server, or a primary with a standby that follows it asynchronously.
func startSQL(ctx context.Context, kind string, failOver bool) (Server, error) {
	made := sqlServer{products[kind]}

	if !failOver {
		set, err := servers.StartOwn(ctx, []string{kind}, io.Discard)
		if err != nil {
			return nil, err
		}

		return described(ctx, &single{sqlServer: made, kind: kind, set: set})
	}

	both, err := servers.StartReplicated(ctx, kind, servers.Asynchronous, io.Discard)
	if err != nil {
		return nil, err
	}

	return described(ctx, &pair{sqlServer: made, both: both})
}

// sqlServer is what one server and a pair have in common.
type sqlServer struct{ product product }

// product is what PostgreSQL and MySQL do differently.
type product struct {
	open     func(dsn string) (*sql.DB, error)
	version  string // a query
	endpoint func(dsn string) (string, error)
	moved    func(dsn, address string) (string, error)
}

var products = map[string]product{
	"postgres": {
		open: openPostgres,
		version: `SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)
			|| ', synchronous_commit=' || current_setting('synchronous_commit') || ', fsync=' || current_setting('fsync')
			|| ', max_connections=' || current_setting('max_connections')`,
		endpoint: postgresEndpoint,
		moved:    movedPostgres,
	},
	"mysql": {
		open: openMySQL,
		version: `SELECT CONCAT('MySQL ', SUBSTRING_INDEX(VERSION(), '-', 1),
			', innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit, ', sync_binlog=', @@sync_binlog,
			', max_connections=', @@max_connections)`,
		endpoint: mysqlEndpoint,
		moved:    movedMySQL,
	},
}

func openPostgres(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}

	return stdlib.OpenDB(*config), nil
}

func openMySQL(dsn string) (*sql.DB, error) {
	config, err := driver.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}

	config.Logger = &driver.NopLogger{}

	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}

	return sql.OpenDB(connector), nil
}

func postgresEndpoint(dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}

	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), nil
}

func movedPostgres(dsn, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}

	if !strings.Contains(dsn, "://") {
		return fmt.Sprintf("%s host=%s port=%s", dsn, host, port), nil // the last one of a keyword counts
	}

	parsed, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the data source name is not a valid URL") // the error of url has the password
	}

	parsed.Host = address

	return parsed.String(), nil
}

func mysqlEndpoint(dsn string) (string, error) {
	config, err := driver.ParseDSN(dsn)
	if err != nil {
		return "", err
	}

	return config.Addr, nil
}

func movedMySQL(dsn, address string) (string, error) {
	config, err := driver.ParseDSN(dsn)
	if err != nil {
		return "", err
	}

	config.Net, config.Addr = "tcp", address

	return config.FormatDSN(), nil
}

// addressed is a server of which we know how it is reached now.
type addressed interface {
	Server
	dsn() string
	describe(ctx context.Context) error
}

// described asks a server that was just started for its version.
func described(ctx context.Context, s addressed) (Server, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	if err := s.describe(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("ask for the version: %w", err), s.Close())
	}

	return s, nil
}

func (s sqlServer) ask(ctx context.Context, dsn string) (version string, err error) {
	db, err := s.product.open(dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()

	err = db.QueryRowContext(ctx, s.product.version).Scan(&version)

	return version, err
}

// endpoints are none only for a data source name that was not made here.
func (s sqlServer) endpoints(dsn string) []string {
	address, err := s.product.endpoint(dsn)
	if err != nil {
		return nil
	}

	return []string{address}
}

func (s sqlServer) at(dsn, address string) string {
	moved, err := s.product.moved(dsn, address)
	if err != nil {
		return ""
	}

	return moved
}

// single is one server, which can be killed and started again.
type single struct {
	sqlServer

	kind, version string
	set           *servers.Set
}

func (s *single) dsn() string { return s.set.DSN(s.kind) }

func (s *single) describe(ctx context.Context) (err error) {
	s.version, err = s.ask(ctx, s.dsn())

	return err
}

func (s *single) Version() string                   { return s.version }
func (s *single) Endpoints() []string               { return s.endpoints(s.dsn()) }
func (s *single) DSN(_ int, address string) string  { return s.at(s.dsn(), address) }
func (s *single) Kill(ctx context.Context) error    { return s.set.Crash(ctx, s.kind) }
func (s *single) Restart(ctx context.Context) error { return s.set.Restart(ctx, s.kind) }
func (*single) Lag(context.Context) error           { return ErrNone }
func (*single) FailOver(context.Context) error      { return ErrNone }
func (s *single) Close() error                      { return s.set.Close() }
