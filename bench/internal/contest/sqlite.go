package contest

import (
	"database/sql"

	_ "modernc.org/sqlite" // the driver

	"github.com/sqllock/sqllock/databases/sqlite"
)

// openSQLite is a file in WAL mode, synced at each commit. The busy timeout is
// longer than the documentation's: many goroutines want the one writer's place.
func openSQLite(c Config) (*pool, error) {
	db, err := sql.Open("sqlite", "file:"+c.Address.DSN+
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	if err != nil {
		return nil, err
	}

	db.SetMaxOpenConns(c.Pool)
	db.SetMaxIdleConns(c.Pool)

	return stdPool(db, sqlite.New(db), sqlite.Tx), nil
}
