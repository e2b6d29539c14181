package process

import "os"

// runningProgram is what this process executes, also if its file is gone; empty if
// that is not to be had (proc_pid_exe(5)).
func runningProgram() string {
	const link = "/proc/self/exe"

	if _, err := os.Stat(link); err != nil {
		return ""
	}

	return link
}
