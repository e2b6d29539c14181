package servers

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/test/schema"
)

// startMySQL makes a database of the run's own, on MySQL or MariaDB.
func startMySQL(ctx context.Context, product string) (*Server, error) {
	given, err := dsn(product)
	if err != nil {
		return nil, err
	}

	config, err := driver.ParseDSN(given)
	if err != nil {
		return nil, err
	}

	admin, err := openMySQL(config)
	if err != nil {
		return nil, err
	}

	name := uniqueName()
	if err := execAll(ctx, admin, "CREATE DATABASE "+name); err != nil {
		return nil, errors.Join(err, admin.Close())
	}

	asked := 0.0
	server := &Server{
		Address: contest.Address{DSN: given, Database: name},
		statistics: func(ctx context.Context) (Statistics, error) {
			asked++ // also counted

			found, err := mysqlStatistics(ctx, admin)
			found.Statements -= asked

			return found, err
		},
		connections: func(ctx context.Context) (n int, err error) {
			asked++
			err = admin.QueryRowContext(ctx, `SELECT count(*) FROM information_schema.processlist WHERE db = ?`, name).Scan(&n)

			return n, err
		},
		close: func(ctx context.Context) error {
			return errors.Join(execAll(ctx, admin, "DROP DATABASE "+name), admin.Close())
		},
	}

	config = config.Clone()
	config.DBName = name
	config.ParseTime = true // goose reads times

	own, err := openMySQL(config)
	if err != nil {
		return nil, errors.Join(err, server.close(ctx))
	}
	defer own.Close()

	err = schema.Up(ctx, own, databases.MySQL)
	if err == nil {
		err = execAll(ctx, own, "CREATE TABLE sqllock_bare LIKE sqllock_locks", floorRow)
	}

	var version, flush, binlog, sync string

	if err == nil {
		err = own.QueryRowContext(ctx, `SELECT version(), @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog`).
			Scan(&version, &flush, &binlog, &sync)
	}

	if err != nil {
		return nil, errors.Join(err, server.close(ctx))
	}

	title := "MySQL "
	if product == "mariadb" {
		title = "MariaDB "
	}

	version, _, _ = strings.Cut(version, "-")
	server.Version = title + version + ", innodb_flush_log_at_trx_commit=" + flush + ", log_bin=" + binlog + ", sync_binlog=" + sync

	return server, nil
}

func openMySQL(config *driver.Config) (*sql.DB, error) {
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}

	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(2)

	return db, nil
}

func mysqlStatistics(ctx context.Context, admin *sql.DB) (found Statistics, err error) {
	rows, err := admin.QueryContext(ctx, `SHOW GLOBAL STATUS WHERE Variable_name IN
		('Questions', 'Innodb_os_log_written')`)
	if err != nil {
		return Unknown(), err
	}
	defer rows.Close()

	found = Unknown()

	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return Unknown(), err
		}

		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return Unknown(), err
		}

		if name == "Questions" {
			found.Statements = value
		} else {
			found.LogBytes = value
		}
	}

	return found, rows.Err()
}
