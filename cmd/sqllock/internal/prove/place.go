package prove

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/migrations"
)

// Place is where a proof has its tables, and nothing else is: a schema of PostgreSQL, a database of a MySQL or MariaDB
// server, a folder beside an SQLite file. Here it is the database that the user named, in which there were no tables of
// sqllock.
type Place struct {
	// Name is the schema's, the database's or the folder's; empty where the tables are in the user's own.
	Name string
	// Target is the database with that place.
	Target dsn.Target

	base dsn.Target
}

// prefix is what the names of all places begin with.
const prefix = migrate.ProofPrefix

// PrivilegeError says that the account may not make a place.
type PrivilegeError struct {
	// Fix is what lets it, or goes without.
	Fix string
	Err error
}

func (e *PrivilegeError) Error() string { return e.Err.Error() + "; " + e.Fix }

func (e *PrivilegeError) Unwrap() error { return e.Err }

// ErrNotEmpty says that there are tables of sqllock already where a proof was to make its own.
var ErrNotEmpty = errors.New("there are tables of sqllock already; name an empty schema or database")

// Make makes a place and its tables. Whatever it returns, Remove removes what was made. here takes the database as it
// is, for accounts that may not make another.
func Make(ctx context.Context, target dsn.Target, here, untested bool) (*Place, error) {
	p := &Place{base: target}

	if here {
		p.Target = target.Proving("", untested)

		if err := p.empty(ctx); err != nil {
			return nil, err
		}

		return p, p.tables(ctx)
	}

	name := prefix + strings.ToLower(rand.Text()[:10])

	if target.Dialect == databases.SQLite {
		beside := filepath.Dir(target.Path)

		// Nobody has made the one of the embedded file yet, and it would stay.
		if _, err := os.Stat(beside); target.Embedded && err != nil {
			beside = os.TempDir()
		}

		folder, err := os.MkdirTemp(beside, name+"_")
		if err != nil {
			return nil, fmt.Errorf("make a folder beside %s: %w", target, err)
		}

		p.Name, p.Target = folder, target.Proving(filepath.Join(folder, "locks.db"), untested)

		return p, p.tables(ctx)
	}

	p.Name, p.Target = name, target.Proving(name, untested)

	if err := p.execute(ctx, target, "CREATE "+p.kind()+" "+name); err != nil {
		err = p.denied(ctx, err)

		if denied := (*PrivilegeError)(nil); errors.As(err, &denied) {
			return nil, err
		}

		return p, err // it may be there
	}

	return p, p.tables(ctx)
}

// kind is what the place is in SQL.
func (p *Place) kind() string {
	if p.base.Dialect == databases.Postgres {
		return "SCHEMA"
	}

	return "DATABASE"
}

// denied adds to an error what the account lacks.
func (p *Place) denied(ctx context.Context, err error) error {
	db, openErr := p.base.OpenToLook(ctx)
	if openErr != nil {
		return err
	}
	defer db.Close()

	if db.Locks.Classify(err) != databases.NotAllowed {
		return err
	}

	query, fix := `SELECT 'GRANT CREATE ON DATABASE ' || pg_catalog.quote_ident(current_database()::text) || ' TO ' || pg_catalog.quote_ident(current_user::text)`, ""
	if d := p.base.Dialect; d == databases.MySQL || d == databases.TiDB {
		query = "SELECT CONCAT('GRANT ALL ON `" + strings.ReplaceAll(prefix, "_", `\\_`) + "%`.* TO ', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', 1)), '@', QUOTE(SUBSTRING_INDEX(CURRENT_USER(), '@', -1)))"
	}

	if db.SQL.QueryRowContext(ctx, query).Scan(&fix) != nil {
		return err
	}

	return &PrivilegeError{"run " + fix + ", or name an empty " + strings.ToLower(p.kind()) + " in the URL and add --prove-here", err}
}

// tables makes sqllock's tables, and that of the history.
func (p *Place) tables(ctx context.Context) error {
	db, err := p.Target.Open(ctx, true)
	if err != nil {
		return err
	}
	defer db.Close()

	if _, err := migrate.Up(ctx, db); err != nil {
		return fmt.Errorf("make sqllock's tables: %w", err)
	}

	if _, err := db.SQL.ExecContext(ctx, counterSQL); err != nil {
		return fmt.Errorf("make a table: %w", err)
	}

	if p.base.Dialect == databases.SQLite {
		// The cases have copies of the file, and not of its log.
		_, err = db.SQL.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}

	return err
}

// objects are those that a proof makes, in the order in which they can be dropped.
func objects(dialect databases.Dialect) []string {
	list := []string{"VIEW sqllock_holders", "VIEW sqllock_waiters"}

	leases := dialect == databases.MySQL || dialect == databases.TiDB

	for _, table := range []string{"locks", "leases", "inserts", "mutexes", "shares", "queue", "floor"} {
		if table != "leases" || leases {
			list = append(list, "TABLE sqllock_"+table)
		}
	}

	return append(list, "TABLE "+migrations.TableName, "TABLE "+counterTable)
}

// empty returns ErrNotEmpty if the database has one of the tables.
func (p *Place) empty(ctx context.Context) error {
	if p.base.Dialect == databases.SQLite {
		return errors.New("a proof on SQLite has a file of its own")
	}

	db, err := p.base.OpenToLook(ctx)
	if err != nil {
		return err
	}
	defer db.Close()

	if err := db.SQL.PingContext(ctx); err != nil {
		return err
	}

	for _, object := range objects(p.base.Dialect) {
		_, name, _ := strings.Cut(object, " ")

		switch err := look(ctx, db.SQL, name); {
		case err == nil, db.Locks.Classify(err) == databases.NotAllowed:
			return fmt.Errorf("%w (%s)", ErrNotEmpty, name)
		case db.Locks.Classify(err) != databases.NoSchema:
			return err
		}
	}

	return nil
}

func look(ctx context.Context, db *sql.DB, table string) error {
	rows, err := db.QueryContext(ctx, "SELECT 1 FROM "+table+" WHERE 1 = 0")
	if err != nil {
		return err
	}

	defer func() { _ = rows.Close() }()

	return rows.Err()
}

// removeTime bounds Remove: sessions of a process that was killed may have the tables locked for a while.
const removeTime = 30 * time.Second

// Remove removes the place with all that is in it.
func (p *Place) Remove(ctx context.Context) error {
	if p.base.Dialect == databases.SQLite {
		return os.RemoveAll(p.Name)
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()

	for {
		err := p.remove(ctx)
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

func (p *Place) remove(ctx context.Context) error {
	if p.Name != "" {
		return p.execute(ctx, p.base.WithLockWait(), p.Statement())
	}

	for _, object := range objects(p.base.Dialect) {
		kind, name, _ := strings.Cut(object, " ")
		if err := p.execute(ctx, p.base.WithLockWait(), "DROP "+kind+" IF EXISTS "+name); err != nil {
			return err
		}
	}

	return nil
}

// Statement removes the place by hand.
func (p *Place) Statement() string {
	switch {
	case p.base.Dialect == databases.SQLite:
		return "rm -r " + p.Name
	case p.Name == "":
		var statements []string
		for _, object := range objects(p.base.Dialect) {
			statements = append(statements, "DROP "+object+";")
		}

		return strings.Join(statements, " ")
	default:
		return removal(p.base.Dialect, p.Name)
	}
}

func removal(dialect databases.Dialect, name string) string {
	if dialect == databases.Postgres {
		return "DROP SCHEMA IF EXISTS " + name + " CASCADE"
	}

	return "DROP DATABASE IF EXISTS " + name
}

// Leftovers are statements that remove the places of other proofs, which run or have crashed.
func (p *Place) Leftovers(ctx context.Context) (statements []string) {
	if p.base.Dialect == databases.SQLite {
		folders, _ := filepath.Glob(filepath.Join(filepath.Dir(p.base.Path), prefix+"*"))
		for _, folder := range folders {
			if folder != filepath.Clean(p.Name) {
				statements = append(statements, "rm -r "+folder)
			}
		}

		return statements
	}

	db, err := p.base.OpenToLook(ctx)
	if err != nil {
		return nil
	}
	defer db.Close()

	query := "SELECT nspname::text FROM pg_catalog.pg_namespace"
	if d := p.base.Dialect; d == databases.MySQL || d == databases.TiDB {
		query = "SELECT schema_name FROM information_schema.schemata"
	}

	rows, err := db.SQL.QueryContext(ctx, query)
	if err != nil {
		return nil
	}

	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var name string
		if rows.Scan(&name) == nil && strings.HasPrefix(name, prefix) && name != p.Name {
			statements = append(statements, removal(p.base.Dialect, name))
		}
	}

	_ = rows.Err()

	return statements
}

// execute runs a statement on a connection of its own. One of PostgreSQL does not wait for long.
func (p *Place) execute(ctx context.Context, target dsn.Target, statement string) error {
	db, err := target.OpenToLook(ctx)
	if err != nil {
		return err
	}
	defer db.Close()

	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	if p.base.Dialect == databases.Postgres {
		if _, err := conn.ExecContext(ctx, "SET lock_timeout = '5s'"); err != nil {
			return err
		}
		defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), "RESET lock_timeout") }()
	}

	_, err = conn.ExecContext(ctx, statement)

	return err
}
