package worker

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sqllock/sqllock/bench/internal/contest"
)

// steps acquires and releases one name when it is told to.
func (s *session) steps(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}

	if err := s.ready(); err != nil {
		return err
	}

	var release contest.Release

	for {
		word, err := s.word()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}

		var answer Answer

		answer.Began = Clock()

		switch word {
		case Acquire:
			release, err = s.locker.Acquire(ctx, 0, s.job.Name)
		case Free:
			err = release(ctx)
		default:
			err = fmt.Errorf("there is no step %q", word)
		}

		answer.Done = Clock()

		if err != nil {
			answer.Error = err.Error()
		}

		if err := s.answer(answer); err != nil {
			return err
		}
	}
}

// connect sees to it that a connection is there before anything is measured.
func (s *session) connect(ctx context.Context) error {
	release, err := s.locker.Acquire(ctx, 0, fmt.Sprintf("%s/warm/%d", s.job.Name, Clock()))
	if err != nil {
		return err
	}

	return release(ctx)
}
