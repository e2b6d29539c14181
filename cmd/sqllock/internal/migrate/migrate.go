// Package migrate brings sqllock's tables up and down with goose.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
)

// Step is a migration that was applied or rolled back.
type Step struct {
	// Name of the migration's file.
	Name string
	// Took is how long it ran.
	Took time.Duration
}

// Up applies what is pending. Any number of processes may call it at once: on
// a server they take turns behind a session lock, on SQLite behind its one
// writer.
func Up(ctx context.Context, db *dsn.Database) ([]Step, error) {
	for attempt := 1; ; attempt++ {
		steps, err := run(ctx, db, (*goose.Provider).Up)
		if err == nil || attempt == attempts || !overtaken(db, err) {
			return steps, err
		}

		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Duration(attempt) * 50 * time.Millisecond):
		}
	}
}

const attempts = 10

// overtaken says whether another process did the same meanwhile. goose looks
// for pending migrations before it takes its lock, and makes its version table
// on the way: two that come at once can both try, or one can find the table
// while its first row is not there yet. On SQLite there is no lock, but a
// migration is one transaction: the one that comes second finds the tables
// made, and nothing is left of it.
func overtaken(db *dsn.Database, err error) bool {
	text := err.Error()

	if strings.Contains(text, "missing zero version") || strings.Contains(text, "already exists") ||
		strings.Contains(text, "duplicate key") {
		return true
	}

	return db.Target.Dialect == databases.SQLite &&
		(db.Locks.Classify(err) == databases.Busy || strings.Contains(text, "database is locked"))
}

// Down rolls the last applied migration back; none left is no error.
func Down(ctx context.Context, db *dsn.Database) ([]Step, error) {
	return run(ctx, db, func(p *goose.Provider, ctx context.Context) ([]*goose.MigrationResult, error) {
		result, err := p.Down(ctx)
		if err != nil {
			if errors.Is(err, goose.ErrNoNextVersion) {
				return nil, nil
			}

			return nil, err
		}

		return []*goose.MigrationResult{result}, nil
	})
}

// DownAll rolls every migration back.
func DownAll(ctx context.Context, db *dsn.Database) ([]Step, error) {
	return run(ctx, db, func(p *goose.Provider, ctx context.Context) ([]*goose.MigrationResult, error) {
		return p.DownTo(ctx, 0)
	})
}

func run(
	ctx context.Context, db *dsn.Database,
	do func(*goose.Provider, context.Context) ([]*goose.MigrationResult, error),
) ([]Step, error) {
	p, err := provider(db)
	if err != nil {
		return nil, err
	}

	results, err := do(p, ctx)

	var partial *goose.PartialError
	if errors.As(err, &partial) {
		results = partial.Applied
	}

	steps := make([]Step, 0, len(results))
	for _, r := range results {
		steps = append(steps, Step{Name: path.Base(r.Source.Path), Took: r.Duration})
	}

	return steps, err
}

// Status is one migration in the database.
type Status struct {
	// Name of the migration's file.
	Name string
	// Applied: it is in the database, since At.
	Applied bool
	At      time.Time
}

// Statuses lists all migrations, oldest first. It writes nothing: goose alone
// would make its version table.
func Statuses(ctx context.Context, db *dsn.Database) ([]Status, error) {
	p, err := provider(db)
	if err != nil {
		return nil, err
	}

	exists, err := versioned(ctx, db)
	if err != nil {
		return nil, err
	}

	var statuses []Status

	if !exists {
		for _, source := range p.ListSources() {
			statuses = append(statuses, Status{Name: path.Base(source.Path)})
		}

		return statuses, nil
	}

	found, err := p.Status(ctx)
	if err != nil {
		return nil, err
	}

	for _, s := range found {
		statuses = append(statuses, Status{
			Name: path.Base(s.Source.Path), Applied: s.State == goose.StateApplied, At: s.AppliedAt,
		})
	}

	return statuses, nil
}

func versioned(ctx context.Context, db *dsn.Database) (bool, error) {
	store, err := database.NewStore(gooseDialect(db.Target.Dialect), migrations.TableName)
	if err != nil {
		return false, err
	}

	asker, ok := store.(interface {
		TableExists(ctx context.Context, db database.DBTxConn) (bool, error)
	})
	if !ok {
		// Then goose asks in its own way, and makes the table.
		return true, nil
	}

	exists, err := asker.TableExists(ctx, db.SQL)
	if errors.Is(err, errors.ErrUnsupported) {
		return tableThere(ctx, db.SQL), nil
	}

	return exists, err
}

// tableThere asks in the one way that every server understands.
func tableThere(ctx context.Context, db *sql.DB) bool {
	rows, err := db.QueryContext(ctx, "SELECT 1 FROM "+migrations.TableName+" WHERE 1 = 0")
	if err != nil {
		return false
	}

	defer func() { _ = rows.Close() }()

	return rows.Err() == nil
}

func provider(db *dsn.Database) (*goose.Provider, error) {
	files, err := migrations.For(string(db.Target.Dialect))
	if err != nil {
		return nil, err
	}

	options := []goose.ProviderOption{
		goose.WithTableName(migrations.TableName),
		goose.WithDisableGlobalRegistry(true),
	}

	locker, err := sessionLocker(db.Target.Dialect)
	if err != nil {
		return nil, err
	}

	if locker != nil {
		options = append(options, goose.WithSessionLocker(locker))
	}

	p, err := goose.NewProvider(gooseDialect(db.Target.Dialect), db.SQL, files, options...)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}

	return p, nil
}

func gooseDialect(dialect databases.Dialect) goose.Dialect {
	switch dialect {
	case databases.MySQL:
		return goose.DialectMySQL
	case databases.SQLite:
		return goose.DialectSQLite3
	default:
		return goose.DialectPostgres
	}
}
