// Package sqlite keeps locks in an SQLite file, for processes of one machine
// and for trying sqllock without a server. It works with any driver of
// database/sql and imports none.
//
// The file must lie on a local file system, and have one path: a file with a
// second hard link, and one that is mounted into a container without its folder,
// are refused, because SQLite keeps the WAL beside the path. Every process must open it
// with a busy timeout, so that a writer waits for the other's commit:
// _pragma=busy_timeout(2000) in the DSN of modernc.org/sqlite, _busy_timeout
// in that of github.com/mattn/go-sqlite3. SQLite 3.42 or later is needed.
//
// A file that is removed or replaced while it is open ends its locks.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/sqllock/sqllock/databases"
)

// New returns the database behind a pool of any SQLite driver. The pool stays
// the caller's: nothing here closes it.
func New(db *sql.DB) *DB { return &DB{StdPool: databases.StdPool{DB: db}} }

// Tx wraps the caller's transaction for Guard and ReleaseTx.
func Tx(tx *sql.Tx) databases.Tx { return databases.StdTx(tx, databases.SQLite) }

// DB is an SQLite database. It is safe for concurrent use.
type DB struct {
	databases.StdPool

	file atomic.Pointer[file] // nil while nothing is known of it
}

// Dialect is databases.SQLite.
func (*DB) Dialect() databases.Dialect { return databases.SQLite }

var verify = databases.Statement{
	Name: "sqlite.verify",
	SQL:  `SELECT sqlite_version(), unixepoch('subsec') IS NOT NULL`,
}

// Verify reports a server that is no SQLite, or one before 3.42, which has no
// clock finer than a second; SQLite that several machines share; and a file that others may open under another path.
func (d *DB) Verify(ctx context.Context, s databases.Session) error {
	if err := refuse(d.DB.Driver()); err != nil {
		return err
	}

	var (
		version string
		subsec  bool
	)

	_, err := s.Run(ctx, verify, nil, func(row databases.Row) error { return row(&version, &subsec) })
	if err != nil {
		// Another server answers with an error about the function.
		if strings.Contains(strings.ToLower(err.Error()), "sqlite_version") {
			return &databases.ServerError{Found: "it has no sqlite_version()", Err: err}
		}

		return err
	}

	if !subsec {
		return &databases.ServerError{Found: "SQLite " + version + " is before 3.42, which unixepoch('subsec') needs"}
	}

	// A database in memory has no file.
	if first := d.file.Load(); first != nil {
		return refuseAlias(first.path)
	}

	return nil
}

// refuse reports a driver, by its package, behind which SQLite runs on several machines. A connector may have none.
func refuse(d driver.Driver) error {
	if of := reflect.Indirect(reflect.ValueOf(d)); of.IsValid() {
		return refusePackage(of.Type().PkgPath())
	}

	return nil
}

func refusePackage(path string) error {
	// Tried with three nodes: it granted a token of 0, and its library ended the process when connections were closed
	// after their contexts.
	if strings.Contains(path, "canonical/go-dqlite") {
		return &databases.ServerError{Found: "it is dqlite, which granted a token of 0", Fix: "use PostgreSQL, MySQL or MariaDB"}
	}

	return nil
}

// Result codes, https://www.sqlite.org/rescode.html. The low byte of an
// extended code is the primary one.
const (
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	primary      = 0xff
)

// Classify sorts by result code where the driver tells it, and by the text of
// the message where SQLite has no code of its own (a missing table).
func (*DB) Classify(err error) databases.Class {
	switch code(err) & primary {
	case codeBusy, codeLocked:
		return databases.Busy
	case codeReadOnly:
		return databases.ReadOnly
	}

	if noSchema.MatchString(fmt.Sprint(err)) {
		return databases.NoSchema
	}

	return databases.Unknown // of nil, too
}

var noSchema = regexp.MustCompile(`no such (table|column)|has no column named`)

// code reads the result code: modernc.org/sqlite and ncruces/go-sqlite3 have a
// method Code, mattn/go-sqlite3 an error struct with a field Code. Zero where
// there is none.
func code(err error) int64 {
	for ; err != nil; err = errors.Unwrap(err) {
		if m := reflect.ValueOf(err).MethodByName("Code"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
			return integer(m.Call(nil)[0])
		}

		if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct {
			if f := v.FieldByName("Code"); f.IsValid() {
				return integer(f)
			}
		}
	}

	return 0
}

func integer(v reflect.Value) int64 {
	if number := reflect.TypeFor[int64](); v.CanConvert(number) {
		return v.Convert(number).Int()
	}

	return 0
}
