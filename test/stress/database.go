//go:build unix

package stress

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/sqllock/sqllock/databases"
	sqllockmysql "github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/databases/tidb"
)

// place says how a process reaches the database of a pair.
type place struct {
	Engine string `json:"engine"`
	// DSN of the server; for SQLite, the file.
	DSN string `json:"dsn"`
	// Address replaces the server's: a proxy's.
	Address string `json:"address,omitempty"`
	// Database is the pair's own on the server.
	Database string `json:"database,omitempty"`
	// Isolation is the level that sessions begin their transactions with; empty is the server's default.
	Isolation string `json:"isolation,omitempty"`
	// IsolationVariable is what MySQL and MariaDB call it, which differs between their versions.
	IsolationVariable string `json:"isolation_variable,omitempty"`
}

// connectTimeout bounds the making of a connection, which drivers leave to the operating system.
const connectTimeout = 2 * time.Second

// dialect is the folder of the migrations, too.
func (p place) dialect() databases.Dialect {
	if p.Engine == "mariadb" {
		return databases.MySQL
	}

	return databases.Dialect(p.Engine)
}

// likeMySQL says that the driver and the tables are MySQL's.
func (p place) likeMySQL() bool {
	return p.dialect() == databases.MySQL || p.dialect() == databases.TiDB
}

// open opens a pool through database/sql, as the application has one for its own data.
func (p place) open(size int) (*sql.DB, error) {
	db, err := p.openAny()
	if err != nil {
		return nil, err
	}

	db.SetMaxOpenConns(size)

	return db, nil
}

func (p place) openAny() (*sql.DB, error) {
	switch p.dialect() {
	case databases.Postgres:
		config, err := p.postgres()
		if err != nil {
			return nil, err
		}

		return stdlib.OpenDB(*config), nil
	case databases.MySQL, databases.TiDB:
		config, err := p.mysql()
		if err != nil {
			return nil, err
		}

		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}

		return sql.OpenDB(connector), nil
	default:
		// IMMEDIATE: a guarded transaction writes, and one that became a writer only then could not.
		return sql.Open("sqlite", "file:"+p.DSN+
			"?_txlock=immediate&_pragma=busy_timeout(500)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	}
}

// openLocks opens a pool for the locks. PostgreSQL's is pgxpool.
func (p place) openLocks(ctx context.Context, size int) (databases.DB, func(), error) {
	if p.dialect() == databases.Postgres {
		config, err := p.postgres()
		if err != nil {
			return nil, nil, err
		}

		pooled, err := pgxpool.ParseConfig("")
		if err != nil {
			return nil, nil, err
		}

		pooled.ConnConfig = config
		pooled.MaxConns = int32(size)

		pool, err := pgxpool.NewWithConfig(ctx, pooled)
		if err != nil {
			return nil, nil, err
		}

		return postgres.New(pool), pool.Close, nil
	}

	db, err := p.open(size)
	if err != nil {
		return nil, nil, err
	}

	closePool := func() { _ = db.Close() }

	switch p.dialect() {
	case databases.MySQL:
		return sqllockmysql.New(db), closePool, nil
	case databases.TiDB:
		return tidb.New(db), closePool, nil
	default:
		return sqlite.New(db), closePool, nil
	}
}

// tx wraps a transaction of the application for Lock.Guard.
func (p place) tx(tx *sql.Tx) databases.Tx {
	switch p.dialect() {
	case databases.Postgres:
		return postgres.StdTx(tx)
	case databases.MySQL:
		return sqllockmysql.Tx(tx)
	case databases.TiDB:
		return tidb.Tx(tx)
	default:
		return sqlite.Tx(tx)
	}
}

func (p place) postgres() (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(p.DSN)
	if err != nil {
		return nil, err
	}

	if p.Address != "" {
		config.Host, config.Port, err = splitAddress(p.Address)
		if err != nil {
			return nil, err
		}
	}

	if p.Database != "" {
		config.Database = p.Database
	}

	if p.Isolation != "" {
		config.RuntimeParams["default_transaction_isolation"] = p.Isolation
	}

	config.ConnectTimeout = connectTimeout

	return config, nil
}

func (p place) mysql() (*mysql.Config, error) {
	config, err := mysql.ParseDSN(p.DSN)
	if err != nil {
		return nil, err
	}

	if p.Address != "" {
		config.Addr = p.Address
	}

	if p.Database != "" {
		config.DBName = p.Database
	}

	if p.Isolation != "" {
		config.Params = map[string]string{p.IsolationVariable: "'" + isolationMySQL[p.Isolation] + "'"}
	}

	config.Timeout = connectTimeout
	config.ParseTime = true // goose reads times
	config.Logger = &mysql.NopLogger{}

	return config, nil
}

var isolationMySQL = map[string]string{"repeatable read": "REPEATABLE-READ", "serializable": "SERIALIZABLE"}

// tables are the application's data: a number for each name, every write that was committed, and accounts between which
// transfers are made. Nothing but Lock.Guard keeps two transactions from making the same number of it, or from
// changing the sum of the accounts, and the writes have no unique key that would hide it.
var tables = []string{
	`CREATE TABLE stress_register (name VARCHAR(255) NOT NULL PRIMARY KEY, value BIGINT NOT NULL)`,
	`CREATE TABLE stress_accounts (name VARCHAR(255) NOT NULL PRIMARY KEY, balance BIGINT NOT NULL)`,
	`CREATE TABLE stress_writes (name VARCHAR(255) NOT NULL, value BIGINT NOT NULL, token BIGINT NOT NULL, writer VARCHAR(64) NOT NULL)`,
}

// createDatabase makes the pair's database with sqllock's tables, as the migrations of a revision have them, and the
// application's. What an earlier try or round left is removed before.
func createDatabase(ctx context.Context, p place, names []string, of *Revision) (err error) {
	if p.Database != "" {
		server := p
		server.Database = ""

		if err := inPool(server, func(db *sql.DB) error {
			_, err := db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+p.Database)
			if err == nil {
				_, err = db.ExecContext(ctx, "CREATE DATABASE "+p.Database)
			}

			return err
		}); err != nil {
			return err
		}
	} else {
		for _, file := range []string{p.DSN, p.DSN + "-wal", p.DSN + "-shm"} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}

	return inPool(p, func(db *sql.DB) error {
		if err := of.migrate(ctx, db, p.dialect()); err != nil {
			return err
		}

		for _, table := range tables {
			if p.likeMySQL() {
				// Its collations do not tell trailing spaces.
				table = strings.ReplaceAll(table, "name VARCHAR", "name VARBINARY")
			}

			if _, err := db.ExecContext(ctx, table); err != nil {
				return err
			}
		}

		for _, name := range names {
			for _, table := range []string{"stress_register", "stress_accounts"} {
				if _, err := db.ExecContext(ctx, p.bind("INSERT INTO "+table+" VALUES (?, 0)"), name); err != nil {
					return err
				}
			}
		}

		return nil
	})
}

// inPool calls f with a pool that keeps no connection when it is done.
func inPool(p place, f func(*sql.DB) error) error {
	db, err := p.open(2)
	if err != nil {
		return err
	}

	return errors.Join(f(db), db.Close())
}

// bind turns question marks into what the dialect has for them.
func (p place) bind(query string) string {
	if p.dialect() != databases.Postgres {
		return query
	}

	var (
		bound  []byte
		number int
	)

	for _, c := range []byte(query) {
		if c != '?' {
			bound = append(bound, c)

			continue
		}

		number++
		bound = fmt.Appendf(bound, "$%d", number)
	}

	return string(bound)
}

// write is a committed row of stress_writes.
type write struct {
	name         string
	value, token int64
	writer       string
}

// readWrites returns what was committed.
func readWrites(ctx context.Context, db *sql.DB) (writes []write, err error) {
	rows, err := db.QueryContext(ctx, "SELECT name, value, token, writer FROM stress_writes ORDER BY name, value, token")
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, rows.Close()) }()

	for rows.Next() {
		var w write
		if err := rows.Scan(&w.name, &w.value, &w.token, &w.writer); err != nil {
			return nil, err
		}

		writes = append(writes, w)
	}

	return writes, rows.Err()
}

// sessions counts the server's sessions in the pair's database, but for the one that asks.
func (p place) sessions(ctx context.Context, db *sql.DB) (count int, err error) {
	query := map[databases.Dialect]string{
		databases.Postgres: `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
AND backend_type = 'client backend'`,
		databases.MySQL:  `SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`,
		databases.TiDB:   `SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`,
		databases.SQLite: `SELECT 0`,
	}[p.dialect()]

	err = db.QueryRowContext(ctx, query).Scan(&count)

	return count, err
}

// held counts the rows that say that somebody holds a lock.
func (p place) held(ctx context.Context, db *sql.DB) (count int, err error) {
	owners := "SELECT count(*) FROM sqllock_locks WHERE owner <> ''"
	if p.likeMySQL() {
		owners = "SELECT count(*) FROM sqllock_leases WHERE owner <> ''"
	}

	for _, query := range []string{owners, "SELECT count(*) FROM sqllock_inserts"} {
		var rows int
		if err := db.QueryRowContext(ctx, query).Scan(&rows); err != nil {
			return 0, err
		}

		count += rows
	}

	return count, nil
}

// endSessions ends some of the sessions in the database, as an operator does, and returns how many: those that
// hold locks, or any.
func (p place) endSessions(ctx context.Context, server *sql.DB, name string, holding bool) (ended int, err error) {
	const most = 3

	if p.dialect() == databases.Postgres {
		// Strategies mark the sessions that hold their locks.
		err = server.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'
			   AND (application_name LIKE 'sqllock%' OR NOT $2)
			 ORDER BY random() LIMIT $3) s`, p.Database, holding, most).Scan(&ended)

		return ended, err
	}

	query, args := "SELECT id FROM information_schema.processlist WHERE db = ?", []any{p.Database}

	if holding {
		// An open transaction, or the named lock of strategy advisory.
		sum := sha256.Sum256([]byte("sqllock\x00" + p.Database + "\x00" + name))
		query += " AND (id IN (SELECT trx_mysql_thread_id FROM information_schema.innodb_trx) OR id = IS_USED_LOCK(?))"

		args = append(args, "sqllock:"+hex.EncodeToString(sum[:20]))
	}

	ids, err := readIDs(ctx, server, query+" ORDER BY rand() LIMIT ?", append(args, most)...)
	if err != nil {
		return 0, err
	}

	for _, id := range ids {
		// One that has ended meanwhile needs no killing.
		if _, err := server.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err == nil {
			ended++
		}
	}

	return ended, nil
}

func readIDs(ctx context.Context, db *sql.DB, query string, args ...any) (ids []int64, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}

	defer func() { err = errors.Join(err, rows.Close()) }()

	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}

		ids = append(ids, id)
	}

	return ids, rows.Err()
}

// isolationVariable is what the server calls the isolation level of new transactions: MariaDB before 11.1
// has tx_isolation only.
func (p place) isolationVariable(ctx context.Context, db *sql.DB) (string, error) {
	if !p.likeMySQL() {
		return "", nil
	}

	var name, value string

	err := db.QueryRowContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name = 'transaction_isolation'").Scan(&name, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return "tx_isolation", nil
	}

	return name, err
}
