//go:build unix

package child

import (
	"errors"
	"syscall"
)

func credential(user *Account) *syscall.Credential {
	if user == nil {
		return nil
	}

	return &syscall.Credential{Uid: user.UID, Gid: user.GID}
}

// signalGroup works after the leader has ended too: a group's number is not given to another process
// while the group has members.
func signalGroup(p *Process, sig syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}

	return nil
}
