package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contest"
)

// closing bounds the end of a contestant.
const closing = 20 * time.Second

// session is a worker at work.
type session struct {
	job        Job
	locker     contest.Locker
	statements *atomic.Int64
	in         *bufio.Reader
	out        io.Writer
}

// Run works off the job that comes on in, and answers on out.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &session{in: bufio.NewReader(in), out: out, statements: new(atomic.Int64)}

	line, err := s.in.ReadBytes('\n')
	if err != nil {
		return err
	}

	if err := json.Unmarshal(line, &s.job); err != nil {
		return err
	}

	if err := s.work(ctx); err != nil {
		return s.answer(Result{Error: err.Error()})
	}

	return nil
}

func (s *session) work(ctx context.Context) error {
	contestant, ok := contest.Find(s.job.Contestant)
	if !ok {
		return fmt.Errorf("there is no contestant %q", s.job.Contestant)
	}

	var err error

	s.locker, err = contestant.Open(ctx, contest.Config{
		Address: s.job.Address, Pool: s.job.Pool, Lease: s.job.Lease, Statements: s.statements,
	})
	if err != nil {
		return err
	}

	var result Result

	switch s.job.Kind {
	case Load:
		result, err = s.load(ctx)
	case Steps:
		err = s.steps(ctx)
	case Held:
		// The database forgets the locks with the run; to free them would
		// take longer than what is measured.
		result, err = s.held(ctx)
		if err != nil {
			return err
		}

		return s.answer(result)
	case Waiters:
		result, err = s.waiters(ctx)
	case Guarded:
		result, err = s.guarded(ctx)
	default:
		err = fmt.Errorf("there is no job %q", s.job.Kind)
	}

	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()

	// Closed before the answer: the server has counted everything then.
	if err := errors.Join(err, s.locker.Close(ending)); err != nil {
		return err
	}

	if s.job.Kind == Steps {
		return nil
	}

	return s.answer(result)
}

// ready says so, and waits until the job may begin.
func (s *session) ready() error {
	if _, err := fmt.Fprintln(s.out, Ready); err != nil {
		return err
	}

	word, err := s.word()
	if err == nil && word != Go {
		err = fmt.Errorf("%q instead of %q", word, Go)
	}

	return err
}

func (s *session) word() (string, error) {
	line, err := s.in.ReadString('\n')

	return strings.TrimSpace(line), err
}

func (s *session) answer(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintln(s.out, string(text))

	return err
}

// counted is how many statements the driver has counted since, or -1 if it
// counts none.
func (s *session) counted(before int64) int64 {
	now := s.statements.Load()
	if now == 0 {
		return -1
	}

	return now - before
}
