package dsn

import (
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Driver is the target as its driver reads it.
func (t Target) Driver() string { return t.driver }

// PostgresConfig is the target as pgx reads it.
func (t Target) PostgresConfig() (*pgxpool.Config, error) { return t.postgresConfig() }

// MySQLConfig is the target as go-sql-driver reads it.
func (t Target) MySQLConfig() (*mysql.Config, error) { return t.mysqlConfig() }

// StateFolder is stateFolder.
var StateFolder = stateFolder
