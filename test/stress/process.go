//go:build unix

package stress

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/test/servers/child"
)

// process is a worker process as the round sees it.
type process struct {
	settings workerSettings
	child    *child.Process
	commands *os.File
}

// startWorker starts the program of a revision as a worker.
func startWorker(settings workerSettings, of *Revision, folder string) (*process, error) {
	program, err := of.worker()
	if err != nil {
		return nil, err
	}

	text, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}

	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reading.Close()

	output, err := os.OpenFile(filepath.Join(folder, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()

	cmd := exec.Command(program) //nolint:noctx // the round ends it
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = reading, output, output

	p := &process{settings: settings, commands: writing}

	p.child, err = child.Start(cmd, child.Options{DeathSignal: syscall.SIGKILL})
	if err != nil {
		_ = writing.Close()

		return nil, err
	}

	return p, nil
}

// command tells the worker something. One that has just died does not hear it.
func (p *process) command(format string, args ...any) {
	_, _ = fmt.Fprintf(p.commands, format+"\n", args...)
}

// kill ends the worker at once, and says if it had ended by itself.
func (p *process) kill() error {
	_ = p.child.Signal(syscall.SIGKILL)
	code := p.child.ExitCode()
	_ = p.commands.Close()

	if code != 128+int(syscall.SIGKILL) {
		return fmt.Errorf("worker %d.%d had ended by itself, with code %d", p.settings.Process, p.settings.Life, code)
	}

	return nil
}

// stop asks the worker to end, and returns what is wrong if it does not within grace, or not well.
func (p *process) stop(machine *stalls, grace time.Duration) error {
	asked := now()
	p.command(commandStop)

	tick := time.NewTicker(heartbeat)
	defer tick.Stop()

	for {
		select {
		case <-p.child.Done():
			_ = p.commands.Close()

			if err := p.child.Err(); err != nil {
				return fmt.Errorf("worker %d.%d failed: %w", p.settings.Process, p.settings.Life, err)
			}

			return nil
		case <-tick.C:
		}

		if machine.elapsed(asked) > grace {
			break
		}
	}

	// Its goroutines go to the output.
	_ = p.child.Signal(syscall.SIGQUIT)

	select {
	case <-p.child.Done():
	case <-time.After(2 * time.Second):
	}

	_ = p.kill()

	return fmt.Errorf("worker %d.%d did not end within %s after it was told to", p.settings.Process, p.settings.Life, grace)
}
