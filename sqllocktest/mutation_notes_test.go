package sqllocktest_test

import (
	"context"
	"sync"

	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// anybodys records a mark whoever asks for it.
type anybodys struct{ *sqllocktest.Memory }

func (s anybodys) Mark(ctx context.Context, name, _ string, tick int64) (bool, error) {
	notes, err := s.Notes(ctx, name)
	if err != nil {
		return false, err
	}

	return s.Memory.Mark(ctx, name, notes.Owner, tick)
}

// shrinking tells the mark that was recorded last.
type shrinking struct{ *sqllocktest.Memory }

// last is that mark, by name.
var last sync.Map

func (s shrinking) Mark(ctx context.Context, name, owner string, tick int64) (bool, error) {
	last.Store(name, tick)

	return s.Memory.Mark(ctx, name, owner, tick)
}

func (s shrinking) Status(ctx context.Context, name string) (strategies.Status, bool, error) {
	status, found, err := s.Memory.Status(ctx, name)
	if mark, ok := last.Load(name); ok {
		status.Mark, _ = mark.(int64)
	}

	return status, found, err
}

// tickless forgets marks.
type tickless struct{ *sqllocktest.Memory }

func (s tickless) Notes(ctx context.Context, name string) (strategies.Notes, error) {
	notes, err := s.Memory.Notes(ctx, name)
	notes.Mark = 0

	return notes, err
}

func (s tickless) Status(ctx context.Context, name string) (strategies.Status, bool, error) {
	status, found, err := s.Memory.Status(ctx, name)
	status.Mark = 0

	return status, found, err
}

// clinging tells each holder of the requests to those before.
type clinging struct {
	*sqllocktest.Memory
}

// asked are the last requests, by name.
var asked sync.Map

func (s clinging) Ask(ctx context.Context, name, reason string) (bool, error) {
	asked.Store(name, reason)

	return s.Memory.Ask(ctx, name, reason)
}

func (s clinging) Status(ctx context.Context, name string) (strategies.Status, bool, error) {
	status, found, err := s.Memory.Status(ctx, name)
	if reason, ok := asked.Load(name); ok && status.Owner != "" {
		status.ReleaseRequested, _ = reason.(string)
	}

	return status, found, err
}
