package gocron

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/sqllock"
)

// ErrNotLeader reports that another scheduler leads, or none does at this moment.
var ErrNotLeader = errors.New("this scheduler is not the leader")

// Elector is a gocron.Elector: only the leader runs jobs. A job runs twice at a change of leaders if the old one ran it
// and the clock of the next one is behind.
type Elector struct {
	election *election.Election
	ended    chan struct{}
	err      error // once ended is closed
}

// Elect campaigns in the background until ctx ends. Then it resigns, and another scheduler leads. End ctx after the
// scheduler was shut down, so that no job is running any more, and then call [Elector.Wait].
func Elect(ctx context.Context, e *election.Election) *Elector {
	elector := &Elector{election: e, ended: make(chan struct{})}

	go func() {
		defer close(elector.ended)

		elector.err = e.Run(ctx, func(ctx context.Context, _ *sqllock.Lock) error {
			<-ctx.Done()

			return nil
		})
	}()

	return elector
}

// IsLeader returns nil if this process leads. It asks the clocks, not the database. Errors: [ErrNotLeader], and with it why
// the campaign has ended, if it has: see [election.Election.Run].
func (e *Elector) IsLeader(context.Context) error {
	if e.election.Leading() != 0 {
		return nil
	}

	select {
	case <-e.ended:
		return errors.Join(ErrNotLeader, e.err)
	default:
		return ErrNotLeader
	}
}

// Wait waits until the campaign has ended, and returns why if that was not the end of its context. gocron drops what IsLeader
// returns, so this is where to hear that no campaign is possible.
func (e *Elector) Wait() error {
	<-e.ended

	return e.err
}
