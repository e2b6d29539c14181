// Package schema makes sqllock's tables for tests.
package schema

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

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

	return UpFrom(ctx, db, dialect, files)
}

// UpFrom applies other migrations of the tables in place of ours.
func UpFrom(ctx context.Context, db *sql.DB, dialect databases.Dialect, files fs.FS) error {
	return up(ctx, db, dialect, files, migrations.TableName)
}

// Functions applies the migration that makes the functions of PostgreSQL.
func Functions(ctx context.Context, db *sql.DB) error {
	return up(ctx, db, databases.Postgres, migrations.Functions(), migrations.FunctionsTableName)
}

func up(ctx context.Context, db *sql.DB, dialect databases.Dialect, files fs.FS, table string) error {
	store, err := database.NewStore(map[databases.Dialect]goose.Dialect{
		databases.Postgres: goose.DialectPostgres, databases.MySQL: goose.DialectMySQL,
		databases.TiDB: goose.DialectTiDB, databases.SQLite: goose.DialectSQLite3,
	}[dialect], table)
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
