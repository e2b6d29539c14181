//go:build !linux

package servers

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/shirou/gopsutil/v4/process"
)

func startTime(pid int) (string, error) {
	found, err := process.NewProcess(int32(pid))
	if errors.Is(err, process.ErrorProcessNotRunning) {
		return "", fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}

	if err != nil {
		return "", err
	}

	created, err := found.CreateTime()
	if err != nil {
		return "", err
	}

	return strconv.FormatInt(created, 10), nil
}
