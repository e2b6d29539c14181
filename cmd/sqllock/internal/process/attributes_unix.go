//go:build unix && !linux

package process

import "syscall"

// attributes: an own group. Only Linux lets a process die with its parent; the
// watchdog sees to that elsewhere.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
