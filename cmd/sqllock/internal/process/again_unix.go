//go:build unix

package process

import (
	"os"
	"os/exec"
)

// again is this program once more.
func again(args ...string) (*exec.Cmd, error) {
	path, err := os.Executable()

	// Its file may have been removed, or replaced by another version, while it runs.
	running := runningProgram()
	if running == "" {
		running = path

		if err != nil {
			return nil, err
		}
	}

	cmd := exec.Command(running, args...) //nolint:noctx // it ends with a pipe or by Kill, and not with a context
	if path != "" {
		cmd.Args[0] = path
	}

	return cmd, nil
}
