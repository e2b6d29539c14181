// Package election elects one leader among processes that share a SQL database, and a next one when it is gone.
//
//	leader, err := election.New(locker, "scheduler")
//	...
//	err = leader.Run(ctx, func(ctx context.Context, term *sqllock.Lock) error {
//		return schedule(ctx, term.Token()) // until ctx ends
//	})
//
// A leader is the holder of a lock, and what package sqllock guarantees of locks is true of leaders. A term is
// the time for which one process leads. The leader has it as a [sqllock.Lock]; others know it by its fencing token, a
// number that grows with every leader ([Leader]). The context of a leader ends before anybody else can
// lead, unless somebody takes the lock away ([sqllock.Locker.ForceRelease]): then it ends as after a request to
// resign, a moment later. An outage of the database that is shorter than the trust window changes nothing, and whoever wants to be
// the next waits in line, first come, first served.
//
// Between the last look at a term and what a process does then, it can be paused for any length of time. Where
// two leaders would do damage, use term.Guard, or pass term.Token() along and refuse smaller ones.
//
// Let ctx end on SIGTERM (os/signal.NotifyContext): then a process that is replaced resigns, and the next leads at once.
// Otherwise the next one waits for the lease to end.
package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// AddressKey is the key in the metadata of the lock under which a leader publishes its address.
const AddressKey = "address"

// ErrResignRequested is the cause of the end of a leader's context after [Election.RequestResign].
var ErrResignRequested = errors.New("the leader was asked to resign")

// Election is the election of the leader of a name. It is safe for concurrent use.
type Election struct {
	locker  *sqllock.Locker
	name    string
	options []sqllock.LockOption
	term    atomic.Pointer[sqllock.Lock] // of this process; nil if it does not lead
}

// New returns the election of the leader of a name, which is the name of a lock. The options are those of
// [sqllock.Locker.Acquire]: a lease, a label, the metadata. To publish an address use
//
//	sqllock.WithMetadata(map[string]string{election.AddressKey: "http://10.0.0.7:8080"})
//
// With [sqllock.WithMaxWait] a candidacy ends after that, and Run with [sqllock.ErrNotAcquired]. A [sqllock.WithMaxHold] of the
// locker's does not end a term; one that is given here does. New sends nothing to the database; Run reports what is wrong with the name or the options. Errors:
// [sqllock.ErrInvalidOption] if the locker is nil.
func New(locker *sqllock.Locker, name string, options ...sqllock.Option) (*Election, error) {
	if locker == nil {
		return nil, fmt.Errorf("election of %q: %w: the *sqllock.Locker is nil", name, sqllock.ErrInvalidOption)
	}

	// A leader is not succeeded by the same process without a look at the line, and those who observe hear of it at once.
	// A longest hold of the locker's is for its work.
	options = append([]sqllock.Option{sqllock.WithTuning(sqllock.Tuning{NoHandOff: true, Announce: true}), sqllock.WithMaxHold(0)}, options...)

	return &Election{locker: locker, name: name, options: sqllock.LockOptions(options...)}, nil
}

// Run campaigns, and runs lead whenever this process is the leader, until ctx ends. Then it returns nil, or the error of lead if
// that had another one than the end of its context.
//
// The context of lead ends when ctx does, when the leadership is lost, or when the leader was asked to resign;
// [context.Cause] says which. Then lead should return soon: after a loss another may lead, and otherwise nobody does until it
// has returned. However lead ends, by a panic too, the process resigns. Then Run campaigns again, behind all others, unless
// lead had an error of its own: Run returns that. Not of its own is the end of its context, and whatever it returns after a loss.
//
// If the database does not answer, takes no writes or no more connections, Run tries again, and an event of the kind [sqllock.NotAcquired]
// tells why. It returns the errors that a further try does not mend: those of [sqllock.Locker.Acquire] that are
// not about reaching the database, [sqllock.ErrClosed] among them. Until this process has led for the first time in this Run, it
// also returns any other error of the driver, such as that the database or the user does not exist: then it is the set-up that
// is wrong. Afterwards Run tries again.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term *sqllock.Lock) error) error {
	if lead == nil {
		return fmt.Errorf("election of %q: %w: the function is nil", e.name, sqllock.ErrInvalidOption)
	}

	for failures, led := 0, false; ; {
		served, failed, err := e.serve(ctx, lead)
		led = led || served

		switch {
		case failed:
			return err
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it is over because ctx has ended
		case served:
			failures = 0
		case permanent(err), !led && !passing(err):
			return err
		default:
			failures++
		}

		if !pause(ctx, failures) {
			return nil
		}
	}
}

// serve waits for a term, and serves it. It says whether this process has led, and whether lead had an error of its own.
func (e *Election) serve(ctx context.Context, lead func(context.Context, *sqllock.Lock) error) (led, failed bool, err error) {
	// It is ended around Do, and not inside: the context that Do makes looks at the clocks, as one that is made of it does not.
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)

	err = e.locker.Do(ctx, e.name, func(ctx context.Context, term *sqllock.Lock) error {
		led = true

		// With WithReentrant it may be inside another term of this process.
		around := e.term.Swap(term)
		defer e.term.CompareAndSwap(term, around)

		heeding, stop := context.WithCancel(ctx)

		var group sync.WaitGroup

		group.Go(func() { e.heed(heeding, term, end) })

		defer group.Wait()
		defer stop()

		err := lead(ctx, term)
		failed = err != nil && !isEnd(ctx, err) && !errors.Is(term.Err(), sqllock.ErrLost)

		return err
	}, e.options...)

	return led, failed, err
}

// heed ends a term when its leader was asked to resign, or when it is seen that it was taken away.
func (e *Election) heed(ctx context.Context, term *sqllock.Lock, end context.CancelCauseFunc) {
	for status, err := range e.locker.Watch(ctx, e.name) {
		switch {
		case err != nil:
		case status.Owner == term.Owner() && status.ReleaseRequested != "":
			end(fmt.Errorf("%w: %q", ErrResignRequested, status.ReleaseRequested))

			return
		case status.Token > term.Token(), status.Token == term.Token() && status.Ended == sqllock.ReasonForced:
			// The next renewal says so, too, but later. What is seen may be older than the term: then the token is smaller.
			switch err := term.Check(ctx); {
			case err == nil:
				continue
			case !errors.Is(err, sqllock.ErrLost):
				end(fmt.Errorf("election of %q: %w: term %d was taken away: %w", e.name, sqllock.ErrLost, term.Token(), err))
			}

			return
		}
	}
}

// isEnd says whether an error is that of the leader's context, which has ended.
func isEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// permanent says whether another try makes no difference.
func permanent(err error) bool {
	final := []error{
		sqllock.ErrUnsupported, sqllock.ErrNoSchema, sqllock.ErrNotAllowed, sqllock.ErrInvalidName, sqllock.ErrInvalidOption,
		sqllock.ErrClosed, sqllock.ErrDeadlock, sqllock.ErrNotAcquired,
	}

	return slices.ContainsFunc(final, func(target error) bool { return errors.Is(err, target) })
}

// passing says whether another try may make a difference, whatever the database is.
func passing(err error) bool { return sqllock.Retryable(err) || errors.Is(err, sqllock.ErrLost) }

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// pause waits before the next candidacy, longer after failures, and at random, so that processes do not go together.
func pause(ctx context.Context, failures int) bool {
	most := min(firstPause<<min(failures, 10), lastPause)

	select {
	case <-time.After(most/2 + rand.N(most/2)):
		return true
	case <-ctx.Done():
		return false
	}
}

// Leading returns the term of this process, zero if it does not lead at this moment. It asks the clocks, not the
// database.
func (e *Election) Leading() (term int64) {
	if lock := e.term.Load(); lock != nil && lock.Err() == nil {
		return lock.Token()
	}

	return 0
}

// Leader is who leads.
type Leader struct {
	// Term is the fencing token of the leader; zero if nobody leads.
	Term int64
	// Host and PID of its process, and its label.
	Host  string
	PID   int
	Label string
	// Address is what it has published under [AddressKey]; empty if that is nothing.
	Address string
	// For is how long it leads, and Remaining how long its lease runs if it is not renewed, both by the database's clock at the
	// moment of the look. Renewals are no changes that [Election.Observe] yields. Those of this process ask
	// [sqllock.Lock.Remaining] of their term, which is a little shorter.
	For, Remaining time.Duration
}

// Nobody reports whether there is no leader.
func (l Leader) Nobody() bool { return l.Term == 0 }

// Leader asks the database who leads. Errors are those of [sqllock.Locker.Inspect].
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	status, err := e.locker.Inspect(ctx, e.name)
	if err != nil {
		return Leader{}, err
	}

	return leaderOf(status), nil
}

func leaderOf(s sqllock.Status) Leader {
	if !s.Held() {
		return Leader{}
	}

	var metadata map[string]string

	_ = json.Unmarshal([]byte(s.Holder.Metadata), &metadata) // whoever has the lock otherwise publishes no address

	return Leader{
		Term: s.Token, Host: s.Holder.Host, PID: s.Holder.PID, Label: s.Holder.Label, Address: metadata[AddressKey],
		For: s.HeldFor, Remaining: s.Remaining,
	}
}

// Observe yields who leads at once, and then every change, including that nobody does, until ctx ends or the locker is
// closed. A leader that
// came and went between two looks is not seen; terms only grow.
//
// On PostgreSQL and SQLite changes show at once, elsewhere within a second. If the database does not answer, Observe yields the
// error, once, and goes on; who leads follows when it answers again. Errors that end it are those of [sqllock.Locker.Watch].
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		known, seen := false, int64(0)

		for status, err := range e.locker.Watch(ctx, e.name) {
			leader := leaderOf(status)
			if err == nil && known && leader.Term == seen {
				continue
			}

			known, seen = err == nil, leader.Term

			if !yield(leader, err) {
				return
			}
		}
	}
}

// RequestResign asks the leader to step down, and says why. The context of its function ends with [ErrResignRequested], at once
// where the database has notifications, and otherwise within a second. Then the first of those who wait leads. Errors are those
// of [sqllock.Locker.RequestRelease]; [sqllock.ErrNotHeld] is that nobody leads.
func (e *Election) RequestResign(ctx context.Context, reason string) error {
	return e.locker.RequestRelease(ctx, e.name, reason)
}
