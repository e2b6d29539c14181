package tidb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
)

var (
	// VERSION() is what the option server-version says, so that TiDB may pass for MySQL there.
	verifyKind = databases.Statement{Name: "tidb.verify-kind", SQL: `SELECT TIDB_VERSION() LIMIT 1`}

	// Sessions with these read what was, and would not see who has a lock, or take no writes
	// (https://docs.pingcap.com/tidb/stable/system-variables/).
	verifyReads = databases.Statement{
		Name: "tidb.verify-reads",
		SQL: `SHOW SESSION VARIABLES WHERE Variable_name = 'tidb_snapshot' AND Value <> ''
    OR Variable_name = 'tidb_read_staleness' AND Value NOT IN ('', '0')
    OR Variable_name IN ('tidb_low_resolution_tso', 'tidb_enable_external_ts_read') AND Value = 'ON'`,
	}
	verifyWrites = databases.Statement{
		Name: "tidb.verify-writes",
		SQL:  `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('tidb_restricted_read_only', 'tidb_super_read_only') AND Value = 'ON'`,
	}
)

// Verify reports a server that is not TiDB, or too old, or set up so that locks cannot be kept;
// and, after all of that, one that takes no writes.
func (d *DB) Verify(ctx context.Context, s databases.Session) error {
	var said string

	_, err := s.Run(ctx, verifyKind, nil, func(row databases.Row) error { return row(&said) })

	switch {
	case stranger(err):
		return &databases.ServerError{
			Found: "it is not TiDB", Fix: "for MySQL and MariaDB use mysql.New, of package databases/mysql", Err: err,
		}
	case err != nil:
		return err
	}

	if err := recent(said); err != nil {
		return err
	}

	if setting, err := setting(ctx, s, verifyReads); err != nil || setting != "" {
		if err == nil {
			err = &databases.ServerError{
				Found: setting + ", so that the session reads what was before", Fix: "leave it out of the DSN and of the server's variables",
			}
		}

		return err
	}

	if err := d.mysql.Verify(ctx, s); err != nil {
		return err
	}

	setting, err := setting(ctx, s, verifyWrites)
	if err == nil && setting != "" {
		err = fmt.Errorf("%w: %s", databases.ErrReadOnly, setting)
	}

	return err
}

// stranger says whether a server does not understand BEGIN PESSIMISTIC, or has no such function, or not without
// a database.
func stranger(err error) bool {
	var numbered *driver.MySQLError

	return errors.As(err, &numbered) && (numbered.Number == 1064 || numbered.Number == 1305 || numbered.Number == 1046)
}

// setting returns the last setting that a statement lists, as name=value, or nothing.
func setting(ctx context.Context, s databases.Session, list databases.Statement) (setting string, err error) {
	_, err = s.Run(ctx, list, nil, func(row databases.Row) error {
		var variable, value string

		err := row(&variable, &value)
		setting = variable + "=" + value

		return err
	})

	return setting, err
}

// The first version that it was tried with.
const (
	leastMajor = 8
	leastMinor = 5
)

// recent reports a version that is too old, by the first line of TIDB_VERSION(). A server that was built by hand may
// say None there, or of 8.5 v8.4.0-this-is-a-placeholder.
func recent(said string) error {
	var major, minor int

	release, _, _ := strings.Cut(said, "\n")
	found, _ := fmt.Sscanf(release, "Release Version: v%d.%d", &major, &minor)

	if found < 2 || strings.Contains(release, "placeholder") || major > leastMajor || major == leastMajor && minor >= leastMinor {
		return nil
	}

	return &databases.ServerError{
		Found: fmt.Sprintf("TiDB %d.%d was not tried, and old versions execute an optimistic transaction again by themselves", major, minor),
		Fix:   fmt.Sprintf("use TiDB %d.%d or later", leastMajor, leastMinor),
	}
}
