package child

import "syscall"

func attributes(options Options) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setpgid:    true,
		Pdeathsig:  options.DeathSignal,
		Credential: credential(options.User),
	}
}
