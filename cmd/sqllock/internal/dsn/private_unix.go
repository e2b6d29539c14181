//go:build unix

package dsn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// othersMayWrite are the bits of a mode that let others take part.
const othersMayWrite = 0o022

// private refuses the file that nobody named, or its folder, if it is another's,
// or others may change it, or it is a link to somewhere: whoever put it there would
// have this user's locks, or have this user write to what he may not write himself.
// What is not there is private.
func private(path string) error {
	for _, path := range []string{filepath.Dir(path), path, path + "-wal", path + "-shm"} {
		info, err := os.Lstat(path)

		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		}

		if what := shared(info); what != "" {
			return fmt.Errorf("%s %s, so that it is not for this user's locks: remove it, or name a database", path, what)
		}
	}

	return nil
}

// shared says what makes a file another's; empty if nothing does.
func shared(info fs.FileInfo) string {
	status, ok := info.Sys().(*syscall.Stat_t)

	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return "is a symbolic link"
	case ok && int(status.Uid) != os.Geteuid():
		return fmt.Sprintf("belongs to another user (uid %d)", status.Uid)
	case info.Mode()&othersMayWrite != 0:
		return fmt.Sprintf("can be written by others (mode %04o)", info.Mode().Perm())
	default:
		return ""
	}
}
