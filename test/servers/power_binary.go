package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/sqllock/sqllock/test/servers/child"
	"github.com/sqllock/sqllock/test/servers/freeport"
)

// binaryPower is power over a server that is a process of this machine.
type binaryPower struct {
	found   installation
	account *child.Account
	folder  string
	port    string

	mutex   sync.Mutex
	process *child.Process // replaced by start
}

// launch starts the server in its folder.
func (p *binaryPower) launch() (*child.Process, error) {
	// Not CommandContext: the server outlives any context, and ends with Set.Close.
	cmd := exec.Command(p.found.program, p.found.options(p.folder, p.port)...) //nolint:noctx // see above

	return startIn(cmd, p.folder, child.Options{User: p.account, DeathSignal: p.found.stopSignal})
}

// stop ends the server for good.
func (p *binaryPower) stop() {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	p.process.Stop(p.found.stopSignal, 10*time.Second)
}

// crash sends the signal that ends the server without a word to its clients or its files. PostgreSQL's
// processes are told by the first of them, which SIGQUIT makes do just that
// (https://www.postgresql.org/docs/current/server-shutdown.html, Immediate Shutdown).
func (p *binaryPower) crash(ctx context.Context) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if err := p.process.Signal(p.found.crashSignal); err != nil {
		return err
	}

	select {
	case <-p.process.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *binaryPower) shutdown(context.Context) error {
	p.stop()

	return nil
}

func (p *binaryPower) start(ctx context.Context) (string, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	// Another program may have taken it while the server was down.
	if !freeport.Free(ctx, p.port) {
		port, err := freeport.Find(ctx)
		if err != nil {
			return "", err
		}

		p.port = port
	}

	// What a server that was killed leaves, and would take for another one's.
	_ = os.Remove(filepath.Join(p.folder, "pid"))

	started, err := p.launch()
	if err != nil {
		return "", err
	}

	p.process = started

	return net.JoinHostPort(loopback, p.port), nil
}

func (p *binaryPower) ended(context.Context) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	return endOf(p.process, p.folder)
}

func (*binaryPower) near(context.Context) string { return "" }

func (p *binaryPower) freeze(ctx context.Context) error {
	return p.all(ctx, func(member *process.Process) error { return member.SuspendWithContext(ctx) })
}

func (p *binaryPower) thaw(ctx context.Context) error {
	return p.all(ctx, func(member *process.Process) error { return member.ResumeWithContext(ctx) })
}

// all calls f for the server's first process and its children, of which PostgreSQL has one for each client.
func (p *binaryPower) all(ctx context.Context, f func(*process.Process) error) error {
	p.mutex.Lock()
	pid := p.process.PID()
	p.mutex.Unlock()

	first, err := process.NewProcessWithContext(ctx, int32(pid))
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}

	if err := f(first); err != nil {
		return err
	}

	children, err := first.ChildrenWithContext(ctx)
	if err != nil && !errors.Is(err, process.ErrorNoChildren) {
		return err
	}

	for _, member := range children {
		// One that has ended meanwhile needs nothing.
		if err := f(member); err != nil && !errors.Is(err, os.ErrProcessDone) {
			if running, runErr := member.IsRunningWithContext(ctx); runErr != nil || running {
				return err
			}
		}
	}

	return nil
}
