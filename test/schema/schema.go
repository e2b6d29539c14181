// Package schema makes sqllock's tables for tests.
package schema

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
)

// Up applies the migrations as a team's own goose would.
func Up(ctx context.Context, db *sql.DB, dialect databases.Dialect) error {
	files, err := migrations.For(string(dialect))
	if err != nil {
		return err
	}

	store, err := database.NewStore(map[databases.Dialect]goose.Dialect{
		databases.Postgres: goose.DialectPostgres, databases.MySQL: goose.DialectMySQL,
		databases.TiDB: goose.DialectTiDB, databases.SQLite: goose.DialectSQLite3,
	}[dialect], migrations.TableName)
	if err != nil {
		return err
	}

	provider, err := goose.NewProvider("", db, files, goose.WithStore(store))
	if err != nil {
		return err
	}

	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate up: %w", err)
	}

	return nil
}
