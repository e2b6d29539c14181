// Command withservers runs another command while the test databases are up.
//
//	withservers [--] command [argument...]
//
// It starts the servers of the databases in SQLLOCK_TEST_DATABASES (package servers says how, and which
// settings there are), runs the command with their DSNs in SQLLOCK_TEST_POSTGRES, SQLLOCK_TEST_MYSQL and
// SQLLOCK_TEST_MARIADB, takes the servers down and exits with the command's code.
//
// The command leads a process group of its own. SIGINT, SIGTERM and SIGHUP are passed on to that group, and
// a second one, or 20 seconds of grace, kills it. In every case the servers are taken down before withservers
// ends. SIGQUIT is passed on without an end to follow: a Go program prints its goroutines.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/test/servers"
	"github.com/sqllock/sqllock/test/servers/child"
)

// Exit codes of our own, as a shell has them.
const (
	exitUsage       = 2
	exitNoServers   = 3
	exitNotFound    = 127
	exitInterrupted = 130
)

var errInterrupted = errors.New("interrupted")

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}

	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withservers [--] command [argument...]")
		os.Exit(exitUsage)
	}

	// Never undone: from here on no signal ends this process before the servers are down.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)

	os.Exit(run(args, signals))
}

func run(args []string, signals <-chan os.Signal) (code int) {
	set, err := startServers(signals)

	switch {
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "withservers: interrupted")

		return exitInterrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, err)

		return exitNoServers
	}

	defer func() {
		if err := set.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "withservers:", err)
			code = max(code, 1)
		}
	}()

	return runCommand(args, set.Environment(), signals)
}

// startServers starts the servers, until they are up or a signal comes.
func startServers(signals <-chan os.Signal) (*servers.Set, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	type result struct {
		set *servers.Set
		err error
	}

	results := make(chan result, 1)

	go func() {
		set, err := servers.Start(ctx, servers.Names(), os.Stdout)
		results <- result{set, err}
	}()

	for {
		select {
		case started := <-results:
			if started.err == nil && ctx.Err() != nil {
				return nil, errors.Join(errInterrupted, started.set.Close())
			}

			return started.set, started.err
		case <-signals:
			cancel(errInterrupted)
		}
	}
}

// runCommand runs the command and returns its exit code.
func runCommand(args, environment []string, signals <-chan os.Signal) int {
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // signals end it, not a context
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), environment...)

	process, err := child.Start(cmd, child.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)

		return exitNotFound
	}

	supervise(process, signals)

	// What the command started and left in its group must not outlive the servers.
	_ = process.SignalGroup(syscall.SIGKILL)

	return process.ExitCode()
}

// supervise passes signals on until the command has ended.
func supervise(process *child.Process, signals <-chan os.Signal) {
	const grace = 20 * time.Second

	var tooLate <-chan time.Time

	for {
		select {
		case <-process.Done():
			return

		case <-tooLate:
			_ = process.SignalGroup(syscall.SIGKILL)

		case received := <-signals:
			sig, ok := received.(syscall.Signal)

			switch {
			case ok && sig == syscall.SIGQUIT:
				_ = process.SignalGroup(sig)
			case ok && tooLate == nil:
				_ = process.SignalGroup(sig)
				tooLate = time.After(grace)
			default:
				_ = process.SignalGroup(syscall.SIGKILL)
			}
		}
	}
}
