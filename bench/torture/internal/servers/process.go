package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/test/servers/child"
	"github.com/sqllock/sqllock/test/servers/freeport"
)

// loopback is where the servers listen.
const loopback = "127.0.0.1"

// patience is how long a server may take until it serves.
const patience = time.Minute

// process is a server process with a command line that stays the same, so that it has its port and its data again after it was
// killed.
type process struct {
	// command is the program's path and its arguments.
	command []string
	// folder has its data and its log.
	folder string
	// address is where it listens.
	address string
	// ready is nil when it serves.
	ready func(ctx context.Context, address string) error

	running *child.Process
}

// newProcess makes a folder for a process below the root, and finds a port for it.
func newProcess(ctx context.Context, root, name string) (*process, error) {
	folder := filepath.Join(root, name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}

	port, err := freeport.Find(ctx)
	if err != nil {
		return nil, err
	}

	return &process{folder: folder, address: net.JoinHostPort(loopback, port)}, nil
}

// port is that of its address.
func (p *process) port() string {
	_, port, _ := net.SplitHostPort(p.address)

	return port
}

// start starts it, and does not wait until it serves.
func (p *process) start() error {
	if p.running != nil {
		return fmt.Errorf("%s at %s runs already", p.program(), p.address)
	}

	output, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()

	cmd := exec.Command(p.command[0], p.command[1:]...) //nolint:noctx // kill ends it
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.folder, output, output

	p.running, err = child.Start(cmd, child.Options{DeathSignal: syscall.SIGKILL})
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.program(), err)
	}

	return nil
}

// await waits until it serves.
func (p *process) await(ctx context.Context) error {
	err := until(ctx, func(ctx context.Context) error {
		select {
		case <-p.running.Done():
			return final{fmt.Errorf("it ended: %s", p.lastLine())}
		default:
			return p.ready(ctx, p.address)
		}
	})
	if err != nil {
		return fmt.Errorf("waiting for %s at %s: %w", p.program(), p.address, err)
	}

	return nil
}

// kill ends it with SIGKILL. One that does not run stays as it is.
func (p *process) kill() {
	if p.running == nil {
		return
	}

	p.running.Stop(syscall.SIGKILL, time.Second)
	p.running = nil
}

func (p *process) program() string { return filepath.Base(p.command[0]) }

func (p *process) log() string { return filepath.Join(p.folder, "log") }

func (p *process) lastLine() string {
	text, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(strings.TrimSpace(string(text)), "\n")

	return lines[len(lines)-1]
}

// startAll starts processes that belong together and waits until each serves.
func startAll(ctx context.Context, processes []*process) error {
	for _, p := range processes {
		if err := p.start(); err != nil {
			return err
		}
	}

	for _, p := range processes {
		if err := p.await(ctx); err != nil {
			return err
		}
	}

	return nil
}

// group are processes in one temporary folder.
type group struct {
	root string
	// members are those that are to run: not one that a fail-over has ended.
	members []*process
}

// newGroup makes the folder, and has fill start processes in it. All is undone if that fails.
func newGroup(fill func(g *group) error) (*group, error) {
	root, err := os.MkdirTemp("", "sqllock-torture-")
	if err != nil {
		return nil, err
	}

	g := &group{root: root}
	if err := fill(g); err != nil {
		return nil, errors.Join(err, g.Close())
	}

	return g, nil
}

// add adds a member that does not run yet.
func (g *group) add(ctx context.Context, name string) (*process, error) {
	p, err := newProcess(ctx, g.root, name)
	if err != nil {
		return nil, err
	}

	g.members = append(g.members, p)

	return p, nil
}

// drop ends a member for good.
func (g *group) drop(dead *process) {
	dead.kill()

	var rest []*process

	for _, p := range g.members {
		if p != dead {
			rest = append(rest, p)
		}
	}

	g.members = rest
}

// addresses are those of the processes.
func addresses(processes []*process) []string {
	found := make([]string, 0, len(processes))
	for _, p := range processes {
		found = append(found, p.address)
	}

	return found
}

// Kill ends all of it with SIGKILL.
func (g *group) Kill(context.Context) error {
	for _, p := range g.members {
		p.kill()
	}

	return nil
}

// Restart starts all of it again, with ports and data as before.
func (g *group) Restart(ctx context.Context) error { return startAll(ctx, g.members) }

// Close ends all of it and removes the folder.
func (g *group) Close() error {
	for _, p := range g.members {
		p.kill()
	}

	return os.RemoveAll(g.root)
}

// DSN is the address: these servers need no more than that.
func (*group) DSN(_ int, address string) string { return address }

// final is an error that no wait mends.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// until asks again and again until there is no error, one that is final, or no more time.
func until(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for {
		err := once(ctx, ask)

		var end final
		if err == nil || errors.As(err, &end) {
			return err
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// once asks for at most two seconds.
func once(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()

	return ask(ctx)
}

// findProgram looks for a program on PATH.
func findProgram(name, install string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("there is no %s on PATH: install it (%s)", name, install)
	}

	return path, nil
}
