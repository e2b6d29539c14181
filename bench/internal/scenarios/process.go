package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/sqllock/sqllock/bench/internal/worker"
	"github.com/sqllock/sqllock/test/servers/child"
)

// patience is how long a worker may take for anything but its work.
const patience = 60 * time.Second

// process is a worker process.
type process struct {
	*child.Worker

	lines chan string // closed when it has said its last
}

// spawn starts this program again, as a worker with a job.
func spawn(program string, job worker.Job) (*process, error) {
	cmd := exec.Command(program, "worker") //nolint:noctx // its end is stop
	cmd.Stderr = os.Stderr

	started, err := child.StartWorker(cmd, job)
	if err != nil {
		return nil, err
	}

	p := &process{Worker: started, lines: make(chan string, 16)}

	go func() {
		defer close(p.lines)

		p.Hear(func(line []byte) { p.lines <- string(line) })
	}()

	return p, nil
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
	if err := p.Say(step); err != nil {
		return worker.Answer{}, err
	}

	return p.step(ctx)
}

// stop ends the worker, if it has not ended.
func (p *process) stop() {
	go func() {
		for range p.lines { // nobody wants what it still says
		}
	}()

	p.End()
}
