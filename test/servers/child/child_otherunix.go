//go:build unix && !linux

package child

import "syscall"

func attributes(options Options) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential(options.User)}
}
