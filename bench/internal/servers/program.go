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
	"sync"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/test/servers/child"
	"github.com/sqllock/sqllock/test/servers/freeport"
)

// loopback is where the servers listen.
const loopback = "127.0.0.1"

// program is a server that is no SQL database, and how it can be had.
type program struct {
	// onPath are the programs that are looked for on PATH.
	onPath string
	// image is that of a container, taken if the engine has it already.
	image string
	// inImage is the command in the image; the port is the same inside.
	inImage func(port string) []string
	// debian is the package that is unpacked otherwise.
	debian string
	// command runs the server from a root folder, "" for this machine's own,
	// with its data in the folder.
	command func(root, folder, port string) (*exec.Cmd, error)
	// ready asks the server for its version.
	ready func(ctx context.Context, address string) (version string, err error)
}

// running is a program that was started.
type running struct {
	address, version, from string
	stop                   func(context.Context) error
}

// start brings the server up in the first way that works.
func (p program) start(ctx context.Context, kept string, unpack *sync.Mutex) (*running, error) {
	folder, err := os.MkdirTemp("", "sqllock-bench-")
	if err != nil {
		return nil, err
	}

	started, err := p.startIn(ctx, folder, kept, unpack)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}

	return started, nil
}

func (p program) startIn(ctx context.Context, folder, kept string, unpack *sync.Mutex) (*running, error) {
	port, err := freeport.Find(ctx)
	if err != nil {
		return nil, err
	}

	cmd, from, err := p.choose(ctx, folder, kept, port, unpack)
	if err != nil {
		return nil, err
	}

	output, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer output.Close()

	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, output, output

	process, err := child.Start(cmd, child.Options{DeathSignal: syscall.SIGTERM})
	if err != nil {
		return nil, err
	}

	stop := func(context.Context) error {
		process.Stop(syscall.SIGTERM, 10*time.Second)

		return os.RemoveAll(folder)
	}

	address := net.JoinHostPort(loopback, port)

	version, err := p.await(ctx, process, address, output.Name())
	if err != nil {
		return nil, errors.Join(err, stop(ctx))
	}

	return &running{address, version, from, stop}, nil
}

// choose looks for the program on PATH, as an image, and among the packages.
func (p program) choose(
	ctx context.Context, folder, kept, port string, unpack *sync.Mutex,
) (cmd *exec.Cmd, from string, err error) {
	if _, err := exec.LookPath(p.onPath); err == nil {
		cmd, err := p.command("", folder, port)

		return cmd, "program on PATH", err
	}

	if exec.CommandContext(ctx, "docker", "image", "inspect", p.image).Run() == nil {
		published := loopback + ":" + port + ":" + port
		args := append([]string{"run", "--rm", "-p", published, p.image}, p.inImage(port)...)

		return exec.Command("docker", args...), "container " + p.image, nil //nolint:noctx // its stop ends it
	}

	unpack.Lock()
	defer unpack.Unlock()

	root, err := unpacked(ctx, p.debian, kept)
	if err != nil {
		return nil, "", fmt.Errorf("no %s on PATH, no image %s, no package: %w", p.onPath, p.image, err)
	}

	cmd, err = p.command(root, folder, port)

	return cmd, "package " + p.debian, err
}

func (p program) await(ctx context.Context, process *child.Process, address, log string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()

	for {
		version, err := p.ready(ctx, address)
		if err == nil {
			return version, nil
		}

		select {
		case <-process.Done():
			text, _ := os.ReadFile(log)
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")

			return "", fmt.Errorf("%s ended: %s", p.onPath, lines[len(lines)-1])
		case <-ctx.Done():
			return "", fmt.Errorf("%s is not ready: %w", p.onPath, err)
		case <-tick.C:
		}
	}
}

// ask sends a line to the server and returns what it answers.
func ask(ctx context.Context, address, line string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()

	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}

	if _, err := conn.Write([]byte(line)); err != nil {
		return "", err
	}

	answer := make([]byte, 16<<10)

	n, err := conn.Read(answer)

	return string(answer[:n]), err
}
