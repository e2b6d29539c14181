// Package migrate brings sqllock's tables up and down with goose.
package migrate

import (
	"context"
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
	"github.com/sqllock/sqllock/strategies"
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
// transaction, which succeeds in one of them. It may be killed at any point, and called again.
func Up(ctx context.Context, db *dsn.Database) ([]Step, error) {
	schemas, err := SchemasOf(ctx, db)
	if err != nil {
		return nil, err
	}

	if commitsEach(db.Target.Dialect) {
		made, err := assemble(ctx, db)
		if err != nil {
			return nil, err
		}

		steps, err := run(ctx, db, (*goose.Provider).Up)

		return append(made, steps...), err
	}

	if err := schemas.second(); err != nil {
		return nil, err
	}

	steps, err := inOneTransaction(ctx, db)
	if err != nil || len(steps) == 0 || schemas.findsLocks() || schemas.fixed {
		return steps, err
	}

	// Another user may have made a set at the same moment.
	if schemas, err = SchemasOf(ctx, db); err == nil && len(schemas.Others) > 0 {
		err = schemas.another(schemas.Others[0])
	}

	return steps, err
}

// ErrNewer says that a newer sqllock has migrated the tables, so that this one may not use them.
var ErrNewer = errors.New("a newer sqllock has migrated the tables")

// newer refuses such tables. Without them, and for who may not look, there is nothing to refuse.
func newer(ctx context.Context, db *dsn.Database) error {
	var protocol int64
	if err := db.SQL.QueryRowContext(ctx, "SELECT protocol FROM sqllock_protocol").Scan(&protocol); err == nil && protocol > strategies.Protocol {
		return fmt.Errorf("%w: their protocol is %d, and this one speaks %d", ErrNewer, protocol, strategies.Protocol)
	}

	return nil
}

// inOneTransaction applies what is pending where a migration is a transaction.
func inOneTransaction(ctx context.Context, db *dsn.Database) ([]Step, error) {
	return retried(ctx, func(attempt int, err error) bool {
		// What others are about to remove has lost a part, or its version, at one look and not at the next ones.
		return overtaken(db, err) || (errors.Is(err, errAltered) || errors.Is(err, errMadeOtherwise)) && attempt < looks
	}, func() ([]Step, error) {
		if err := madeOtherwise(ctx, db); err != nil {
			return nil, err
		}

		return run(ctx, db, (*goose.Provider).Up)
	})
}

// retried repeats what others came between.
func retried(ctx context.Context, again func(attempt int, err error) bool, do func() ([]Step, error)) ([]Step, error) {
	for attempt := 1; ; attempt++ {
		steps, err := do()
		if err == nil || attempt == attempts || !again(attempt, err) {
			return steps, err
		}

		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Duration(attempt) * 50 * time.Millisecond):
		}
	}
}

const (
	attempts = 10
	looks    = 4
)

// errMadeOtherwise says what to do about tables of which goose does not know.
var errMadeOtherwise = errors.New(`the tables are there, and were not made by "sqllock migrate up": ` +
	`go on with what made them ("sqllock migrate print" has the SQL of later versions), ` +
	`or remove them first ("sqllock migrate print --down")`)

// madeOtherwise reports tables that goose would try to make again.
func madeOtherwise(ctx context.Context, db *dsn.Database) error {
	s, err := stateOf(ctx, db, db.SQL)

	switch {
	case err != nil || s.noted() || len(s.There) == 0:
		return err
	case len(s.Altered) > 0:
		return s.inTheWay("nothing was made")
	default:
		return errMadeOtherwise
	}
}

// overtaken says whether another process did the same meanwhile. goose looks
// for pending migrations before it takes its lock, and makes its version table
// on the way: two that come at once can both try, or one can find the table
// while its first row is not there yet. On PostgreSQL and SQLite there is no
// lock, but a migration is one transaction: the one that comes second finds the
// tables made, and nothing is left of it.
func overtaken(db *dsn.Database, err error) bool {
	// PostgreSQL's codes of a table, another object and a column that are there, and of a row of the catalog that another is about
	// to write (https://www.postgresql.org/docs/current/errcodes-appendix.html). It may say it in any language.
	if slices.Contains([]string{"42P07", "42710", "42701", "23505"}, code(err)) || goneAlready(err) {
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

// goneAlready is what PostgreSQL says of the catalog's functions about a table that another removes meanwhile: "could not
// open relation with OID ..." (17.12), and of a table on which another has just put a view.
func goneAlready(err error) bool { return code(err) == "XX000" || code(err) == "2BP01" }

// code is PostgreSQL's of an error, empty if it is of another origin.
func code(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Code
	}

	return ""
}

// Down rolls the last applied migration back, or every one; none left is no error. Perhaps a part of the tables is there, and no
// version noted.
func Down(ctx context.Context, db *dsn.Database, all bool) ([]Step, error) {
	schemas, err := SchemasOf(ctx, db)
	if err != nil {
		return nil, err
	}

	if err := schemas.second(); err != nil {
		return nil, err
	}

	if commitsEach(db.Target.Dialect) {
		if something, err := adopt(ctx, db); err != nil || !something {
			return nil, err
		}
	} else if s, err := stateOf(ctx, db, db.SQL); err != nil || !s.noted() {
		return nil, err // goose would make its version table
	}

	return retried(ctx, func(_ int, err error) bool { return goneAlready(err) }, func() ([]Step, error) { return run(ctx, db, back(all)) })
}

// back rolls the last applied migration back, or every one.
func back(all bool) migration {
	return func(p *goose.Provider, ctx context.Context) ([]*goose.MigrationResult, error) {
		if all {
			return p.DownTo(ctx, 0)
		}

		result, err := p.Down(ctx)

		switch {
		case errors.Is(err, goose.ErrNoNextVersion):
			return nil, nil
		case err != nil:
			return nil, err
		default:
			return []*goose.MigrationResult{result}, nil
		}
	}
}

// migration is what goose is to do.
type migration func(*goose.Provider, context.Context) ([]*goose.MigrationResult, error)

func run(ctx context.Context, db *dsn.Database, do migration) ([]Step, error) {
	p, err := provider(db)
	if err != nil {
		return nil, err
	}

	results, err := do(p, ctx)

	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
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

// Statuses lists all migrations, oldest first. It writes nothing: goose's provider
// would make its version table.
func Statuses(ctx context.Context, db *dsn.Database) ([]Status, error) {
	if _, err := SchemasOf(ctx, db); err != nil {
		return nil, err
	}

	p, err := provider(db)
	if err != nil {
		return nil, err
	}

	v, err := versionsOf(ctx, db, db.SQL)
	if err != nil {
		return nil, err
	}

	var statuses []Status

	for _, source := range p.ListSources() {
		status := Status{Name: path.Base(source.Path)}

		if v.exists {
			found, err := v.GetMigration(ctx, db.SQL, source.Version)
			if err == nil {
				status.Applied, status.At = found.IsApplied, found.Timestamp
			} else if !errors.Is(err, database.ErrVersionNotFound) {
				return nil, err
			}
		}

		statuses = append(statuses, status)
	}

	return statuses, nil
}

// versions is the version table.
type versions struct {
	database.Store

	exists bool  // wherever the database finds it
	latest int64 // -1 if it has none
}

// noted says whether a migration was applied.
func (v versions) noted() bool { return v.latest > 0 }

func versionsOf(ctx context.Context, db *dsn.Database, conn database.DBTxConn) (v versions, err error) {
	v.latest = -1

	if v.Store, err = database.NewStore(gooseDialect(db.Target.Dialect), migrations.TableName); err != nil {
		return v, err
	}

	err = look(ctx, conn, "1", migrations.TableName)

	switch class := db.Locks.Classify(err); {
	case class == databases.NoSchema:
		return v, nil
	case class == databases.NotAllowed:
		return v, fmt.Errorf("this user may not look which migrations were applied; migrate as the owner of the tables, or GRANT SELECT ON %s: %w",
			migrations.TableName, err)
	case err != nil:
		return v, err
	}

	v.exists = true
	v.latest, err = v.GetLatestVersion(ctx, conn)

	if errors.Is(err, database.ErrVersionNotFound) {
		v.latest, err = -1, nil
	}

	return v, err
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

	// On PostgreSQL behind a proxy that pools transactions such a lock would stay with a session that others have by then.
	if commitsEach(db.Target.Dialect) {
		options = append(options, goose.WithSessionLocker(mysqlSessionLocker{}))
	}

	p, err := goose.NewProvider(gooseDialect(db.Target.Dialect), db.SQL, files, options...)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}

	return p, nil
}

// gooseDialect is goose's name of a dialect, which is another one for SQLite alone.
func gooseDialect(dialect databases.Dialect) goose.Dialect {
	if dialect == databases.SQLite {
		return goose.DialectSQLite3
	}

	return goose.Dialect(dialect)
}
