package sqlite

import (
	"context"
	"fmt"
	"os"

	"github.com/sqllock/sqllock/databases"
)

var where = databases.Statement{
	Name: "sqlite.where",
	SQL:  `SELECT file FROM pragma_database_list WHERE name = 'main'`,
}

// file is the one that the database was at first.
type file struct {
	path string
	info os.FileInfo
}

// Conn checks out a connection. If the file was removed or another has its name by
// now, that is an error, for ever: connections that are open go on with the file
// that they opened, and others would lock the same names in the new one.
func (d *DB) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := d.StdPool.Conn(ctx)
	if err != nil {
		return nil, err
	}

	first := d.file.Load()
	if first == nil {
		d.learn(ctx, conn)

		return conn, nil
	}

	now, err := os.Stat(first.path)
	if err == nil && os.SameFile(first.info, now) || err != nil && !os.IsNotExist(err) {
		return conn, nil // what a process may not look at any more is no other file
	}

	conn.Discard()

	return nil, fmt.Errorf("%w since this process opened it: %s; locks in it exclude nobody, open the database anew",
		databases.ErrReplaced, first.path)
}

// learn asks which file it is. A database in memory has none, and whatever does not
// answer is told of by Verify.
func (d *DB) learn(ctx context.Context, conn databases.Conn) {
	var path string

	_, err := conn.Run(ctx, where, nil, func(row databases.Row) error { return row(&path) })
	if err != nil || path == "" {
		return
	}

	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		d.file.CompareAndSwap(nil, &file{path, info})
	}
}
