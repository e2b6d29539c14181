package locks

import (
	"context"
	"database/sql"

	migrator "github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/migrations"
)

// migrateOurs applies this library's migrations, as a team's own goose would.
func migrateOurs(ctx context.Context, db *sql.DB, dialect migrator.Dialect, folder string) error {
	files, err := migrations.For(folder)
	if err != nil {
		return err
	}

	store, err := database.NewStore(dialect, migrations.TableName)
	if err != nil {
		return err
	}

	provider, err := migrator.NewProvider("", db, files, migrator.WithStore(store))
	if err != nil {
		return err
	}

	_, err = provider.Up(ctx)

	return err
}
