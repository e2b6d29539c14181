package migrate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
)

// commitsEach says whether the database commits each statement of a migration, so that one which
// was broken off leaves a part of the tables, or all of them with no version noted.
func commitsEach(dialect databases.Dialect) bool {
	return dialect == databases.MySQL || dialect == databases.TiDB
}

// state is what a database has of sqllock.
type state struct {
	Objects
	versions
}

// stateOf looks.
func stateOf(ctx context.Context, db *dsn.Database, conn database.DBTxConn) (s state, err error) {
	// In this order: another process may be at it, and notes the version last.
	if s.Objects, err = Look(ctx, db, conn); err != nil {
		return s, err
	}

	s.versions, err = versionsOf(ctx, db, conn)

	return s, err
}

// inTheWay is an error about tables that are not sqllock's; nil if there are none. Nobody else
// can say what may become of them.
func (s state) inTheWay(done string) error {
	if len(s.Altered) == 0 {
		return nil
	}

	return fmt.Errorf("%s: %w; rename or remove what is not sqllock's, or give sqllock a database of its own, and try again", done, errors.Join(s.Altered...))
}

// errTableExists is MySQL's number for that, of a view, too.
const errTableExists = 1050

// assemble makes those tables and views that are missing, and notes the version. Whoever was broken off at it,
// or at removing them, leaves some: they stay, if they are sqllock's.
func assemble(ctx context.Context, db *dsn.Database) (steps []Step, err error) {
	begun := time.Now()

	// The statement of a process that was killed goes on, and its session has the lock until it ends: what is there before that may go.
	err = alone(ctx, db, func(conn *sql.Conn) error {
		s, err := stateOf(ctx, db, conn)
		if err != nil || s.noted() && len(s.Missing) == 0 {
			return err
		}

		if err := s.inTheWay("nothing was made"); err != nil && !s.noted() {
			return err
		}

		statements, err := made(db.Target.Dialect)
		if err != nil {
			return err
		}

		for _, statement := range statements {
			_, err := conn.ExecContext(ctx, statement)
			if there, ok := errors.AsType[*mysql.MySQLError](err); err != nil && (!ok || there.Number != errTableExists) {
				return fmt.Errorf("%w; \"sqllock migrate up\" goes on from there", err)
			}
		}

		steps = []Step{{Name: firstName, Took: time.Since(begun)}}

		return s.note(ctx, conn)
	})

	return steps, err
}

// firstName is the name of the migration's file that makes the tables.
const firstName = "00001_create_locks.sql"

// note notes the first version, as goose does.
func (v versions) note(ctx context.Context, conn *sql.Conn) (err error) {
	if !v.exists {
		err = v.CreateVersionTable(ctx, conn)
	}

	for next := v.latest + 1; err == nil && next <= 1; next++ {
		err = v.Insert(ctx, conn, database.InsertRequest{Version: next})
	}

	return err
}

// adopt notes the version of tables for which none is noted, so that goose removes them. It returns false if there
// is nothing to be removed.
func adopt(ctx context.Context, db *dsn.Database) (something bool, err error) {
	err = alone(ctx, db, func(conn *sql.Conn) error {
		s, err := stateOf(ctx, db, conn)
		if err != nil {
			return err
		}

		something = s.noted() || len(s.There) > 0
		if s.noted() || !something {
			return nil
		}

		if err := s.inTheWay("nothing was removed"); err != nil {
			return err
		}

		return s.note(ctx, conn)
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
