package child

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Worker is a child that is told what to do in lines, of which the first is its job, and answers in lines.
type Worker struct {
	*Process

	in  io.WriteCloser
	out io.ReadCloser
}

// StartWorker starts cmd and tells it the job, as JSON: an argument would show the passwords in it. The worker is killed when the program
// dies. StartWorker takes over cmd.Stdin and cmd.Stdout, and what the worker says has to be heard: see [Worker.Hear].
func StartWorker(cmd *exec.Cmd, job any) (*Worker, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}

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

	started, err := Start(cmd, Options{DeathSignal: syscall.SIGKILL})
	if err = errors.Join(err, write.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}

	w := &Worker{started, in, out}

	if err := w.Say(string(text)); err != nil {
		w.End()

		return nil, errors.Join(err, out.Close())
	}

	return w, nil
}

// Say tells the worker a line.
func (w *Worker) Say(line string) error {
	_, err := fmt.Fprintln(w.in, line)

	return err
}

// Hear calls f with each line that the worker says, and returns when it has said its last.
func (w *Worker) Hear(f func(line []byte)) {
	defer w.out.Close()

	for scanner := bufio.NewScanner(w.out); scanner.Scan(); {
		f(scanner.Bytes())
	}
}

// End ends the worker, if it has not ended.
func (w *Worker) End() {
	_ = w.in.Close()

	w.Stop(syscall.SIGKILL, time.Second)
}
