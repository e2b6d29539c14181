package servers

import (
	"bytes"
	"fmt"
	"os"
)

// startTime is field 22 of /proc/PID/stat: clock ticks from the machine's start, which no change of the
// clock alters. The second field may hold spaces and parentheses: proc_pid_stat(5).
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}

	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("unexpected contents of /proc/%d/stat: %q", pid, stat)
	}

	return string(fields[19]), nil
}
