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
	path, err := os.Executable()
	if err != nil {
		path, err = calledAs()
	}

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

// calledAs finds the program by the name that it was called by, where there is no /proc.
func calledAs() (string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", fmt.Errorf("find this program, to start it again: %w", err)
	}

	return filepath.Abs(path)
}
