package doctor

import (
	"context"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileSystem looks for file systems whose locks do not hold between machines
// (https://www.sqlite.org/faq.html#q5).
func fileSystem(_ context.Context, e *exam) ([]Finding, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(e.db.Target.Path), &stat); err != nil {
		return nil, err
	}

	switch uint32(stat.Type) { //nolint:gosec // its sign differs between architectures
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, 0xff534d42: // the last is CIFS
		return found(Error, "the file is on a network file system",
			"SQLite's WAL does not work between machines: locks do not exclude and the file breaks",
			"use a file on a local disk, or a database server"), nil
	default:
		return fine("a local file"), nil
	}
}
