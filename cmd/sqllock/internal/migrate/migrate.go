// Package migrate brings sqllock's tables up and down with goose.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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
// MySQL they take turns behind a session lock, elsewhere a migration is one
// transaction, which succeeds in one of them.
func Up(ctx context.Context, db *dsn.Database) ([]Step, error) {
	if err := madeOtherwise(ctx, db); err != nil {
		return nil, err
	}

	for attempt := 1; ; attempt++ {
		steps, err := run(ctx, db, (*goose.Provider).Up)
		if err == nil || !overtaken(db, err) {
			return steps, err
		}

		if attempt == attempts {
			// By now another process has noted what it made.
			if tableThere(ctx, db.SQL, "sqllock_locks") && strings.Contains(err.Error(), "already exists") {
				err = fmt.Errorf("%w: %w", errMadeOtherwise, err)
			}

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

// errMadeOtherwise says what to do about tables of which goose does not know.
var errMadeOtherwise = errors.New(`the tables are there, and were not made by "sqllock migrate up": ` +
	`go on with what made them ("sqllock migrate print" has the SQL of later versions), ` +
	`or remove them first ("sqllock migrate print --down")`)

// madeOtherwise reports tables that goose would try to make again.
func madeOtherwise(ctx context.Context, db *dsn.Database) error {
	// In this order: another process that runs Up makes the version table first.
	if !tableThere(ctx, db.SQL, "sqllock_locks") {
		return nil
	}

	if known, err := versioned(ctx, db); err != nil || known {
		return err
	}

	return errMadeOtherwise
}

// overtaken says whether another process did the same meanwhile. goose looks
// for pending migrations before it takes its lock, and makes its version table
// on the way: two that come at once can both try, or one can find the table
// while its first row is not there yet. On PostgreSQL and SQLite there is no
// lock, but a migration is one transaction: the one that comes second finds the
// tables made, and nothing is left of it.
func overtaken(db *dsn.Database, err error) bool {
	var refused *pgconn.PgError
	// A server may say it in any language.
	if errors.As(err, &refused) && slices.Contains(thereAlready(), refused.Code) {
		return true
	}

	// goose exports nothing for its error, and SQLite has one code for these and for
	// every other error in a statement.
	text := err.Error()

	if strings.Contains(text, "missing zero version") || strings.Contains(text, "already exists") ||
		strings.Contains(text, "duplicate key") {
		return true
	}

	return db.Target.Dialect == databases.SQLite &&
		(db.Locks.Classify(err) == databases.Busy || strings.Contains(text, "database is locked"))
}

// thereAlready are PostgreSQL's codes of what is there already: a table, another
// object, a column, and a row of the catalog that another is about to write
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func thereAlready() []string { return []string{"42P07", "42710", "42701", "23505"} }

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
	if err := CheckSchema(ctx, db); err != nil {
		return nil, err
	}

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
	if err := CheckSchema(ctx, db); err != nil {
		return nil, err
	}

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

// ErrNoSchema says that a PostgreSQL session can neither find nor make a table.
var ErrNoSchema = errors.New("the search_path names no schema that exists and that this user may use")

// CheckSchema returns ErrNoSchema if that is so. goose looks for its table in the
// catalog, finds that of any schema, and cannot read it.
func CheckSchema(ctx context.Context, db *dsn.Database) error {
	if db.Target.Dialect != databases.Postgres {
		return nil
	}

	var there bool

	err := db.SQL.QueryRowContext(ctx, "SELECT pg_catalog.current_schema() IS NOT NULL").Scan(&there)
	if err == nil && !there {
		return ErrNoSchema
	}

	return err
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

	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return tableThere(ctx, db.SQL, migrations.TableName), nil
	case err != nil || exists:
		return exists, err
	}

	// MySQL's catalog does not show a table to those who have no right on it.
	if err := look(ctx, db.SQL, migrations.TableName); db.Locks.Classify(err) == databases.NotAllowed {
		return false, fmt.Errorf("this user may not look which migrations were applied: %w", err)
	}

	return false, nil
}

// tableThere asks in the one way that every server understands.
func tableThere(ctx context.Context, db *sql.DB, name string) bool { return look(ctx, db, name) == nil }

// look reads nothing of a table.
func look(ctx context.Context, db *sql.DB, name string) error {
	rows, err := db.QueryContext(ctx, "SELECT 1 FROM "+name+" WHERE 1 = 0")
	if err != nil {
		return err
	}

	defer func() { _ = rows.Close() }()

	return rows.Err()
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

	if locker := sessionLocker(db.Target.Dialect); locker != nil {
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
	case databases.TiDB:
		return goose.DialectTiDB
	case databases.SQLite:
		return goose.DialectSQLite3
	default:
		return goose.DialectPostgres
	}
}
