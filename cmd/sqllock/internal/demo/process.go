package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/clock"
)

// process is a worker as its parent sees it.
type process struct {
	number int
	cmd    *exec.Cmd
	in     io.WriteCloser
	killed bool
	ended  bool
}

// report is an event of a worker, or its end.
type report struct {
	event

	worker int
	ended  bool
	err    error
}

// start starts a worker, whose reports go to out.
func start(number int, cmd *exec.Cmd, out chan<- report) (*process, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	events, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	cmd.Stderr = os.Stderr

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	go func() {
		for decoder := json.NewDecoder(events); ; {
			var e event
			if decoder.Decode(&e) != nil {
				break
			}

			out <- report{event: e, worker: number}
		}

		err := cmd.Wait()
		out <- report{event: event{At: clock.Now()}, worker: number, ended: true, err: err}
	}()

	return &process{number: number, cmd: cmd, in: in}, nil
}

// say sends the worker a line.
func (p *process) say(line string) { _, _ = fmt.Fprintln(p.in, line) }

// dismiss tells the worker to end.
func (p *process) dismiss() { _ = p.in.Close() }

func (p *process) kill() { _ = p.cmd.Process.Kill() }
