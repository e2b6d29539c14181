package bench_test

import (
	"database/sql"
	"fmt"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
)

// openMySQL is a pool of go-sql-driver/mysql, with or without
// interpolateParams: whether the driver puts values into the text, or prepares
// each statement first, which is one more round trip.
func openMySQL(server string, interpolate bool) func(b *testing.B, spy bool) pool {
	return func(b *testing.B, spy bool) pool {
		b.Helper()

		config := mysqlDatabase(b, server)
		config.InterpolateParams = interpolate

		return mysqlPool(b, config, poolSize, spy)
	}
}

func mysqlPool(b *testing.B, config *driver.Config, size int, spy bool) pool {
	b.Helper()

	own := config.Clone()

	var through *proxy
	if spy {
		through = newProxy(b, config.Net, config.Addr)
		own.Net, own.Addr = "tcp", fmt.Sprintf("127.0.0.1:%d", through.port())
	}

	db := mysqlStd(b, own)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)

	p := stdPool(db, mysql.New(db).WakeWaiters(), through)
	p.another = func(b *testing.B, size int, spy bool) pool {
		b.Helper()

		return mysqlPool(b, config, size, spy)
	}

	return p
}

// mysqlDatabase makes a database and returns how to connect to it.
func mysqlDatabase(b *testing.B, server string) *driver.Config {
	b.Helper()

	config, err := driver.ParseDSN(dsn(b, server))
	if err != nil {
		b.Fatal(err)
	}

	name := uniqueName()
	maintenance := mysqlStd(b, config)
	exec(b, maintenance, "CREATE DATABASE "+name)
	b.Cleanup(func() { exec(b, maintenance, "DROP DATABASE IF EXISTS "+name) })

	config = config.Clone()
	config.DBName = name
	config.ParseTime = true // goose reads times
	direct := mysqlStd(b, config)
	migrate(b, direct, databases.MySQL)
	exec(b, direct, "CREATE TABLE sqllock_bare LIKE sqllock_locks")

	return config
}

func mysqlStd(b *testing.B, config *driver.Config) *sql.DB {
	b.Helper()

	connector, err := driver.NewConnector(config)
	if err != nil {
		b.Fatal(err)
	}

	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	b.Cleanup(func() { _ = db.Close() })

	return db
}
