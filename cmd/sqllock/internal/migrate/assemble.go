package migrate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
)

// commitsEach says whether the database commits each statement of a migration, so that one which
// was broken off leaves a part of the tables, or all of them with no version noted.
func commitsEach(dialect databases.Dialect) bool {
	return dialect == databases.MySQL || dialect == databases.TiDB
}

// state is what a database has of sqllock.
type state struct {
	// noted: the version table says that a migration was applied.
	noted bool
	// there are the tables and views that are there and missing those that are not, as the migrations
	// make them.
	there, missing []Object
	// foreign says of those that are there and are others what they are.
	foreign []string
}

// stateOf looks.
func stateOf(ctx context.Context, db *dsn.Database, conn database.DBTxConn) (s state, err error) {
	expected, err := Expected(db.Target.Dialect)
	if err != nil {
		return s, err
	}

	// In this order: another process may be at it, and notes the version last.
	actual, err := Actual(ctx, conn.QueryContext, db.Target.Dialect)
	if err != nil {
		return s, err
	}

	for _, object := range expected {
		there, ok := actual[object.Name]
		if !ok {
			s.missing = append(s.missing, object)

			continue
		}

		s.there = append(s.there, object)

		differences := object.Differences(there)
		if at := slices.IndexFunc(differences, func(d Difference) bool { return !d.Slow }); at >= 0 {
			s.foreign = append(s.foreign, fmt.Sprintf("%s is there, and is not the one that sqllock makes (%s)", object.Name, differences[at].Found))
		}
	}

	s.noted, err = noted(ctx, db, conn)

	return s, err
}

// noted says whether the version table says that a migration was applied.
func noted(ctx context.Context, db *dsn.Database, conn database.DBTxConn) (bool, error) {
	exists, err := versioned(ctx, db, conn)
	if err != nil || !exists {
		return false, err
	}

	store, err := versions(db)
	if err != nil {
		return false, err
	}

	latest, err := store.GetLatestVersion(ctx, conn)
	if errors.Is(err, database.ErrVersionNotFound) {
		return false, nil
	}

	return latest > 0, err
}

// inTheWay is an error about tables that are not sqllock's; nil if there are none. Nobody else
// can say what may become of them.
func (s state) inTheWay(done string) error {
	if len(s.foreign) == 0 {
		return nil
	}

	return foreignError{done, s.foreign}
}

// foreignError says what is there and is not sqllock's.
type foreignError struct {
	done    string
	foreign []string
}

func (e foreignError) Error() string {
	return fmt.Sprintf("%s: %s; rename or remove what is not sqllock's, or give sqllock a database of its own, and try again",
		e.done, strings.Join(e.foreign, "; "))
}

// assemble makes those tables and views that are missing, and notes the version. Whoever was broken off at it,
// or at removing them, leaves some: they stay, if they are sqllock's.
func assemble(ctx context.Context, db *dsn.Database) ([]Step, error) {
	begun := time.Now()
	did := false

	// The statement of a process that was killed goes on, and its session has the lock until it ends: what is there before that may go.
	err := alone(ctx, db, func(conn *sql.Conn) error {
		s, err := stateOf(ctx, db, conn)
		if err != nil || s.noted && len(s.missing) == 0 {
			return err
		}

		if !s.noted {
			if err := s.inTheWay("nothing was made"); err != nil {
				return err
			}
		}

		for _, object := range s.missing {
			if err := create(ctx, db, conn, object); err != nil {
				return err
			}
		}

		did = true

		return note(ctx, db, conn)
	})
	if err != nil || !did {
		return nil, err
	}

	name, err := firstName(db.Target.Dialect)

	return []Step{{Name: name, Took: time.Since(begun)}}, err
}

// create makes a table or a view. Where the lock of a session is its server's alone, as in a Galera cluster, another process can
// have made it meanwhile.
func create(ctx context.Context, db *dsn.Database, conn *sql.Conn, object Object) error {
	for _, statement := range object.statements {
		_, err := conn.ExecContext(ctx, statement)
		if err == nil {
			continue
		}

		s, stateErr := stateOf(ctx, db, conn)
		made := slices.ContainsFunc(s.there, func(o Object) bool { return o.Name == object.Name })

		if stateErr != nil || !made || len(s.foreign) > 0 {
			return fmt.Errorf("make %s: %w; \"sqllock migrate up\" goes on from there", object.Name, err)
		}
	}

	return nil
}

// note notes the first version, as goose does.
func note(ctx context.Context, db *dsn.Database, conn *sql.Conn) error {
	store, err := versions(db)
	if err != nil {
		return err
	}

	exists, err := versioned(ctx, db, conn)
	if err != nil {
		return err
	}

	if !exists {
		if err := store.CreateVersionTable(ctx, conn); err != nil {
			return err
		}
	}

	latest, err := store.GetLatestVersion(ctx, conn)
	if errors.Is(err, database.ErrVersionNotFound) {
		latest, err = 0, store.Insert(ctx, conn, database.InsertRequest{Version: 0})
	}

	if err != nil || latest > 0 {
		return err
	}

	return store.Insert(ctx, conn, database.InsertRequest{Version: 1})
}

// adopt notes the version of tables for which none is noted, so that goose removes them. It returns false if there
// is nothing to be removed.
func adopt(ctx context.Context, db *dsn.Database) (something bool, err error) {
	err = alone(ctx, db, func(conn *sql.Conn) error {
		s, err := stateOf(ctx, db, conn)
		if err != nil {
			return err
		}

		something = s.noted || len(s.there) > 0
		if s.noted || !something {
			return nil
		}

		if err := s.inTheWay("nothing was removed"); err != nil {
			return err
		}

		return note(ctx, db, conn)
	})

	return something, err
}

// alone runs f on a connection with the lock of those who migrate.
func alone(ctx context.Context, db *dsn.Database, f func(*sql.Conn) error) error {
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	var lock mysqlSessionLocker
	if err := lock.SessionLock(ctx, conn); err != nil {
		return err
	}

	err = f(conn)

	if lock.SessionUnlock(context.WithoutCancel(ctx), conn) != nil {
		// The lock ends with the session.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}

	return err
}

// firstName is the name of the migration's file that makes the tables.
func firstName(dialect databases.Dialect) (string, error) {
	files, err := migrations.For(string(dialect))
	if err != nil {
		return "", err
	}

	names, err := fs.Glob(files, "*.sql")

	return names[0], err
}
