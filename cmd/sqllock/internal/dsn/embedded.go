package dsn

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// embedded is the file that is used when nobody names a database.
func embedded(getenv func(string) string) (Target, error) {
	folder, err := stateFolder(runtime.GOOS, getenv)
	if err != nil {
		return Target{}, err
	}

	t := sqliteFile(filepath.Join(folder, "locks.db"), nil)
	t.Embedded = true

	return t, nil
}

// stateFolder is where programs keep what is neither configuration nor cache
// (https://specifications.freedesktop.org/basedir-spec/latest/).
func stateFolder(system string, getenv func(string) string) (string, error) {
	if folder := getenv("XDG_STATE_HOME"); filepath.IsAbs(folder) {
		return filepath.Join(folder, "sqllock"), nil
	}

	if folder := getenv("LocalAppData"); system == "windows" && folder != "" {
		return filepath.Join(folder, "sqllock"), nil
	}

	home := getenv("HOME")

	if home == "" {
		var err error

		// Where HOME is not set, as under systemd, there may be none at all.
		if home, err = os.UserHomeDir(); err != nil {
			return "", errors.New("no database is named, and there is no home folder for a file of your own: " +
				"give --" + Flag + " or set " + Variable)
		}
	}

	if system == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "sqllock"), nil
	}

	return filepath.Join(home, ".local", "state", "sqllock"), nil
}
