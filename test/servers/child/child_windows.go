package child

import (
	"os"
	"syscall"
)

func attributes(Options) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// signalGroup can only end the child: Windows has neither signals nor a way to send one to a group.
func signalGroup(p *Process, _ syscall.Signal) error { return p.Signal(os.Kill) }
