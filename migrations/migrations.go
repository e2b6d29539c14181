// Package migrations holds sqllock's tables as SQL files in goose's format,
// one folder for each dialect, with the same numbers and names in each. TiDB has those of
// MySQL.
//
// Apply them with "sqllock migrate up", or give [For] to your own goose with
// [TableName] as its version table, so that sqllock's versions and your
// application's never meet. The package imports nothing but the standard
// library; goose stays your choice.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
)

// TableName is the version table that "sqllock migrate" uses. Give it to goose
// (database.NewStore, or goose.SetTableName) when you run goose yourself.
const TableName = "sqllock_goose_version"

// FS holds the folders postgres, mysql (MariaDB and TiDB too) and sqlite, and postgres-functions.
//
//go:embed postgres/*.sql mysql/*.sql sqlite/*.sql postgres-functions/*.sql
var FS embed.FS

// FunctionsTableName is a version table for [Functions], apart from that of the tables.
const FunctionsTableName = "sqllock_functions_goose_version"

// Functions returns the migration that makes functions on PostgreSQL with which programs without the library acquire, renew and release
// locks. It may be left out, and comes after those of [For] if not.
func Functions() fs.FS {
	functions, _ := fs.Sub(FS, "postgres-functions") // never fails: it is a path

	return functions
}

// For returns the migrations of one dialect: "postgres", "mysql", "tidb" or "sqlite".
func For(dialect string) (fs.FS, error) {
	switch dialect {
	case "postgres", "mysql", "sqlite":
		return fs.Sub(FS, dialect)
	case "tidb":
		return fs.Sub(FS, "mysql")
	default:
		return nil, fmt.Errorf("migrations: no dialect %q; there are postgres, mysql (MariaDB too), tidb and sqlite", dialect)
	}
}
