package contest

import (
	"database/sql"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases/mysql"
)

// openMySQLStd is a pool of go-sql-driver/mysql with interpolateParams, as the
// documentation recommends: each statement is one round trip.
func openMySQLStd(c Config) (*sql.DB, error) {
	config, err := driver.ParseDSN(c.Address.DSN)
	if err != nil {
		return nil, err
	}

	config.DBName = c.Address.Database
	config.InterpolateParams = true
	config.Logger = &driver.NopLogger{}

	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}

	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(c.Pool)
	db.SetMaxIdleConns(c.Pool)

	return db, nil
}

func openMySQL(c Config) (*pool, error) {
	db, err := openMySQLStd(c)
	if err != nil {
		return nil, err
	}

	return stdPool(db, mysql.New(db), mysql.Tx), nil
}
