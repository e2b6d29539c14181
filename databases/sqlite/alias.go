package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// mounts lists what this process sees mounted, on Linux (https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html).
const mounts = "/proc/self/mountinfo"

// refuseAlias reports a file that others may open under another path. SQLite looks for the journal and the WAL beside the
// path that it was given, so that whoever opens the file under another one sees nothing of what is in them: two hold one
// lock, and the file breaks (https://www.sqlite.org/howtocorrupt.html#_multiple_links_to_the_same_file). It resolves
// symbolic links by itself.
func refuseAlias(path string) error {
	if info, err := os.Stat(path); err != nil {
		return nil //nolint:nilerr // what a process may not look at has no other name that it knows of
	} else if n := links(info); n > 1 {
		return &databases.ServerError{
			Found: fmt.Sprintf("the file %s has %d names (hard links), and who opens it under another one is not excluded", path, n),
			Fix:   "remove the other names, and copy the file where it was linked",
		}
	}

	if mounted, err := os.ReadFile(mounts); err == nil && mountsFile(string(mounted), path) {
		return &databases.ServerError{
			Found: "the file " + path + " is mounted without its folder, and who opens it outside is not excluded",
			Fix:   "mount the folder that it is in",
		}
	}

	return nil
}

// links is how many names a file has, where the system tells it.
func links(info os.FileInfo) uint64 {
	if stat := reflect.Indirect(reflect.ValueOf(info.Sys())); stat.Kind() == reflect.Struct {
		if n := stat.FieldByName("Nlink"); n.CanUint() {
			return n.Uint()
		}
	}

	return 1
}

// mountsFile says whether a file is a mount of its own.
func mountsFile(mounted, path string) bool {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}

	// The fifth field is the mount point.
	path = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)

	return slices.ContainsFunc(strings.Split(mounted, "\n"), func(line string) bool {
		fields := strings.Fields(line)

		return len(fields) > 4 && fields[4] == path
	})
}
