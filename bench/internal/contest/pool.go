package contest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// pool is an application's pool of connections.
type pool struct {
	db  databases.DB
	std *sql.DB // nil for pgx's own pool
	// exec runs one statement, which commits by itself, on a connection that
	// is checked out for it.
	exec func(ctx context.Context, query string, args ...any) error
	// transaction is that of SQLLock.
	transaction func(ctx context.Context, lock *sqllock.Lock) error
	close       func() error
}

func openPool(ctx context.Context, on string, c Config) (*pool, error) {
	switch on {
	case "postgres":
		return openPostgres(ctx, c)
	case "mysql", "mariadb":
		return openMySQL(c)
	case "sqlite":
		return openSQLite(c)
	default:
		return nil, fmt.Errorf("no pool for %s", on)
	}
}

// updateRow is the application's work in a transaction, on the row that the
// set-up of a server makes.
const updateRow = `UPDATE sqllock_bare SET token = token + 1 WHERE name = 'row'`

// stdPool is a pool of database/sql, whose transactions wrap makes known to the library.
func stdPool(db *sql.DB, on databases.DB, wrap func(*sql.Tx) databases.Tx) *pool {
	return &pool{
		db:  on,
		std: db,
		exec: func(ctx context.Context, query string, args ...any) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}

			_, err = conn.ExecContext(ctx, query, args...)

			return errors.Join(err, conn.Close())
		},
		transaction: func(ctx context.Context, lock *sqllock.Lock) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}

			if lock != nil {
				err = lock.Guard(ctx, wrap(tx))
			}

			if err == nil {
				_, err = tx.ExecContext(ctx, updateRow)
			}

			if err != nil {
				return errors.Join(err, tx.Rollback())
			}

			return tx.Commit()
		},
		close: db.Close,
	}
}
