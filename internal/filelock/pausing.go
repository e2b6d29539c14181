package filelock

import (
	"context"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// pausing is a strategy whose database has become a primary.
type pausing struct {
	*sqllocktest.Memory

	remaining time.Duration
}

func (p pausing) Features() strategies.Features {
	f := p.Memory.Features()
	f.Recovers = true

	return f
}

func (p pausing) Recovery(context.Context) (strategies.Recovery, error) {
	return strategies.Recovery{Remaining: p.remaining}, nil
}

func (pausing) EndRecovery(context.Context, string) error { return nil }

func (pausing) SetLossless(context.Context, bool, string) error { return nil }

// NewPausingLocker returns a locker of a database, in memory, that says how much remains of a recovery pause.
func NewPausingLocker(t *testing.T, remaining time.Duration) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(pausing{sqllocktest.NewMemory(), remaining})
	if err != nil {
		t.Fatal(err)
	}

	return locker
}
