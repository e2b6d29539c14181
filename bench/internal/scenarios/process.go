package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/bench/internal/worker"
	"github.com/sqllock/sqllock/test/servers/child"
)

// patience is how long a worker may take for anything but its work.
const patience = 60 * time.Second

// process is a worker process.
type process struct {
	child *child.Process
	in    io.WriteCloser
	lines chan string // closed when it has said its last
}

// spawn starts this program again, as a worker with a job.
func spawn(program string, job worker.Job) (*process, error) {
	cmd := exec.Command(program, "worker") //nolint:noctx // its end is stop
	cmd.Stderr = os.Stderr

	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	// Not StdoutPipe: the child is waited for while its output is read.
	out, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	cmd.Stdout = write

	started, err := child.Start(cmd, child.Options{DeathSignal: syscall.SIGKILL})
	if err = errors.Join(err, write.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}

	p := &process{child: started, in: in, lines: make(chan string, 16)}

	go func() {
		defer close(p.lines)
		defer out.Close()

		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()

	text, err := json.Marshal(job)
	if err == nil {
		err = p.say(string(text)) // not an argument: it has passwords
	}

	if err != nil {
		p.stop()

		return nil, err
	}

	return p, nil
}

func (p *process) say(line string) error {
	_, err := fmt.Fprintln(p.in, line)

	return err
}

// hear waits for a line.
func (p *process) hear(ctx context.Context, wait time.Duration) (string, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()

	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", errors.New("the worker ended early")
		}

		return line, nil
	case <-timer.C:
		return "", fmt.Errorf("no answer in %s", wait)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ready waits until the worker says that it is.
func (p *process) ready(ctx context.Context) error {
	line, err := p.hear(ctx, patience)
	if err != nil || line == worker.Ready {
		return err
	}

	var result worker.Result
	if err := json.Unmarshal([]byte(line), &result); err != nil {
		return err
	}

	return errors.New(result.Error)
}

// result waits for what the worker found.
func (p *process) result(ctx context.Context, wait time.Duration) (result worker.Result, err error) {
	line, err := p.hear(ctx, wait)
	if err != nil {
		return result, err
	}

	if err := json.Unmarshal([]byte(line), &result); err != nil {
		return result, err
	}

	if result.Error != "" {
		return result, errors.New(result.Error)
	}

	return result, nil
}

// step waits for the answer to a step.
func (p *process) step(ctx context.Context) (answer worker.Answer, err error) {
	line, err := p.hear(ctx, patience)
	if err != nil {
		return answer, err
	}

	if err := json.Unmarshal([]byte(line), &answer); err != nil {
		return answer, err
	}

	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}

	return answer, nil
}

// do is a step and its answer.
func (p *process) do(ctx context.Context, step string) (worker.Answer, error) {
	if err := p.say(step); err != nil {
		return worker.Answer{}, err
	}

	return p.step(ctx)
}

// stop ends the worker, if it has not ended.
func (p *process) stop() {
	_ = p.in.Close()

	go func() {
		for range p.lines { // nobody wants what it still says
		}
	}()

	p.child.Stop(syscall.SIGKILL, time.Second)
}
