//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFileOfThisUserIsPrivate puts things in the place of the file that is used when
// no database is named.
func TestFileOfThisUserIsPrivate(t *testing.T) {
	t.Parallel()

	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct {
		name string
		make func(state, folder, file string)
		said string // empty: it is taken
	}{
		{"nothing", func(string, string, string) {}, ""},
		{"folder", func(_, folder, _ string) { must(os.MkdirAll(folder, 0o755)) }, ""},
		{"linked folder", func(state, folder, _ string) {
			must(os.MkdirAll(state, 0o700))
			must(os.Symlink(t.TempDir(), folder))
		}, "sqllock is a symbolic link"},
		{"linked file", func(state, folder, file string) {
			must(os.MkdirAll(folder, 0o700))
			must(os.Symlink(filepath.Join(state, "elsewhere"), file))
		}, "locks.db is a symbolic link"},
		{"linked journal", func(state, folder, file string) {
			must(os.MkdirAll(folder, 0o700))
			must(os.Symlink(filepath.Join(state, "elsewhere"), file+"-wal"))
		}, "locks.db-wal is a symbolic link"},
		{"open folder", func(_, folder, _ string) {
			must(os.MkdirAll(folder, 0o700))
			must(os.Chmod(folder, 0o777))
		}, "sqllock can be written by others (mode 0777)"},
		{"open file", func(_, folder, file string) {
			must(os.MkdirAll(folder, 0o700))
			must(os.WriteFile(file, nil, 0o600))
			must(os.Chmod(file, 0o620))
		}, "locks.db can be written by others (mode 0620)"},
		{"another's folder", func(_, folder, _ string) {
			must(os.MkdirAll(folder, 0o700))

			if err := os.Chown(folder, 12345, -1); err != nil {
				t.Skip("only root can give a folder away")
			}
		}, "sqllock belongs to another user (uid 12345)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			state := filepath.Join(t.TempDir(), "state")
			folder := filepath.Join(state, "sqllock")
			c.make(state, folder, filepath.Join(folder, "locks.db"))

			for _, args := range [][]string{{"run", "--name", "n", "--", "true"}, {"ls"}, {"doctor"}} {
				i := in(t, "", []string{"XDG_STATE_HOME=" + state}, args...)

				switch said := i.stderr.String(); {
				case c.said == "":
					i.want(0)
				case !strings.Contains(said, c.said):
					t.Errorf("sqllock %s said %q, want %q", strings.Join(args, " "), said, c.said)
				default:
					i.want(exitUnavailable)
				}
			}

			if _, err := os.Stat(filepath.Join(state, "elsewhere")); err == nil {
				t.Error("a link was followed")
			}
		})
	}
}
