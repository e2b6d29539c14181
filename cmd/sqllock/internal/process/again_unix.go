//go:build unix

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// again is this program once more.
func again(args ...string) (*exec.Cmd, error) {
	// Not by its path, where Linux tells (proc_pid_exe(5)): its file may have been removed, or replaced by another version.
	path := "/proc/self/exe"

	if _, err := os.Stat(path); err != nil {
		if path, err = os.Executable(); err != nil {
			// On Linux without /proc.
			if path, err = exec.LookPath(os.Args[0]); err == nil {
				path, err = filepath.Abs(path)
			}
		}

		if err != nil {
			return nil, fmt.Errorf("find this program, to start it again: %w", err)
		}
	}

	cmd := exec.Command(path, args...) //nolint:noctx,gosec // this program; it ends with a pipe or by Kill, and not with a context
	cmd.Args[0] = os.Args[0]

	return cmd, nil
}
