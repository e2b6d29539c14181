package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// onlyDead says whether all that is left of a group are dead processes whose
// parent does not ask for their status, such as a process 1 in a container
// that is not made for it. They do nothing any more.
func onlyDead(group int) bool {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return false
	}

	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the kernel's names
		if err != nil {
			continue // it is gone
		}

		// The name of the program, in parentheses, may have any character in it
		// (proc_pid_stat(5)).
		after := text[bytes.LastIndexByte(text, ')')+1:]

		var (
			state         string
			parent, owner int
		)

		if _, err := fmt.Sscan(string(after), &state, &parent, &owner); err != nil {
			return false
		}

		if owner == group && state != "Z" && state != "X" {
			return false
		}
	}

	return true
}
