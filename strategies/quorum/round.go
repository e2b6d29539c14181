package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// answer is what a server said.
type answer[T any] struct {
	server int
	value  T
	err    error
	came   bool // false: it was not asked, or the call was given up, and err says so
}

// did says whether the server did what it was asked for.
func (a answer[T]) did() bool { return a.came && a.err == nil }

// answers are those of all servers, in their order.
type answers[T any] []answer[T]

// values are what those said who did what they were asked for.
func (all answers[T]) values() (values []T) {
	for _, a := range all {
		if a.did() {
			values = append(values, a.value)
		}
	}

	return values
}

// count is how many did what they were asked for.
func (all answers[T]) count() int { return len(all.values()) }

// errs are their errors, nil where there is none.
func (all answers[T]) errs() []error {
	errs := make([]error, len(all))
	for i, a := range all {
		errs[i] = a.err
	}

	return errs
}

var errSilent = errors.New("no answer in the time that each server has")

// round is one question to several servers, all at once.
type round[T any] struct {
	// limit is how long each has to answer. slack is how much longer the others have when what some said decides; it is
	// at least as long as those took.
	limit, slack time.Duration
	// decided says whether it decides that so many did what they were asked for, while others have not answered; nil: they are
	// all waited for.
	decided func(did, open int) bool
	// patient: the end of the caller's context ends nothing but waits for connections, as strategies.TryAcquire has it.
	// What was sent is answered soon, and then there is nothing in doubt.
	patient bool
	// take takes the answers of those that were asked, and again one that comes when the call was given up; nil if nobody does.
	take func(i int, a answer[T])
}

// moment is what a call gets to return after its context ended.
const moment = 25 * time.Millisecond

// ask calls some of so many servers, and returns when all calls have returned, or were given up: a driver may not return
// from a connection that was cut off.
func (r round[T]) ask(ctx context.Context, servers int, some []int, call func(ctx context.Context, i int) (T, error)) answers[T] {
	sent, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()

	replies := make(chan answer[T], len(some))

	for _, i := range some {
		go func() {
			value, err := call(sent, i)
			replies <- answer[T]{i, value, err, true}
		}()
	}

	began, ended := time.Now(), ctx.Done()
	if r.patient {
		ended = nil
	}

	until := began.Add(r.limit)
	said, open, settled, over := make(answers[T], servers), len(some), r.decided == nil, false

	for open > 0 {
		if !settled && r.decided(said.count(), open) {
			settled = true

			took := time.Since(began)
			until = began.Add(min(took+max(took, r.slack), r.limit))
		}

		select {
		case a := <-replies:
			said[a.server] = a
			open--

			continue
		case <-time.After(time.Until(until)):
		case <-ended:
		}

		if over {
			break
		}

		settled, over, ended = true, true, nil

		cancel()
		until = time.Now().Add(moment)
	}

	for _, i := range some {
		if !said[i].came {
			said[i].err = fmt.Errorf("%w: %w (%s)", strategies.ErrUnreachable, errSilent, r.limit)
		}

		if r.take != nil {
			r.take(i, said[i])
		}
	}

	for ; open > 0 && r.take != nil; open-- {
		go func() {
			late := <-replies
			r.take(late.server, late)
		}()
	}

	return said
}
