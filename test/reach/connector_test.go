package reach_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/databases"
)

// dialTime is how long a node that does not answer may keep a process from the next one.
const dialTime = 2 * time.Second

// connect is the way to a node; database is that of the DSN if it is empty.
func connect(t *testing.T, dialect databases.Dialect, dsn string, number int, database string) node {
	t.Helper()

	if dialect == databases.Postgres {
		config := postgresConfig(t, dsn)
		if database != "" {
			config.Database = database
		}

		address := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))

		return node{number, dsn, address, stdlib.GetConnector(*config)}
	}

	config, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}

	config.DBName = database
	config.ParseTime = true // goose reads times
	config.Timeout = dialTime
	config.Logger = &mysqldriver.NopLogger{} // it prints each connection that broke

	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}

	return node{number, fmt.Sprintf("mysql://%s:%s@%s/%s", config.User, config.Passwd, config.Addr, database), config.Addr, connector}
}

func postgresConfig(t *testing.T, dsn string) *pgx.ConnConfig {
	t.Helper()

	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}

	config.ConnectTimeout = dialTime

	return config
}

func open(t *testing.T, connector driver.Connector) *sql.DB {
	t.Helper()

	pool := sql.OpenDB(connector)
	pool.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = pool.Close() })

	return pool
}

// toPrimary connects to the first node that takes writes, as clients do that are given all nodes, and routers for those
// that are not.
type toPrimary struct {
	dialect databases.Dialect
	nodes   []node
}

func (p toPrimary) Driver() driver.Driver { return p.nodes[0].connector.Driver() }

func (p toPrimary) Connect(ctx context.Context) (driver.Conn, error) {
	var errs []error

	for _, n := range p.nodes {
		conn, err := p.connect(ctx, n)
		if err == nil {
			return conn, nil
		}

		errs = append(errs, fmt.Errorf("node %d: %w", n.number, err))
	}

	return nil, errors.Join(errs...)
}

func (p toPrimary) connect(ctx context.Context, n node) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()

	conn, err := n.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}

	writable, err := takes(ctx, conn, p.dialect)
	if err == nil && !writable {
		err = databases.ErrReadOnly
	}

	if err != nil {
		_ = conn.Close()

		return nil, err
	}

	return conn, nil
}

// takes says whether a server takes writes.
func takes(ctx context.Context, conn driver.Conn, dialect databases.Dialect) (bool, error) {
	query := "SELECT NOT @@global.read_only"
	if dialect == databases.Postgres {
		query = "SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE 1 END::bigint"
	}

	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, query, nil)
	if err != nil {
		return false, err
	}

	value := make([]driver.Value, 1)
	err = errors.Join(rows.Next(value), rows.Close())

	return value[0] == int64(1), err
}
