package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// Who maps the errors of an acquisition, or those of a driver, to "try again" would do the work twice.
func TestErrorAfterTheWorkIsNoneOfAnAcquisition(t *testing.T) {
	t.Parallel()

	held := &strategies.HeldError{Name: name}

	for _, cause := range []error{
		sqllock.ErrUnreachable, sqllock.ErrNotAcquired, sqllock.ErrTooManyConnections, sqllock.ErrReadOnly, sqllock.ErrNotAllowed,
		sqllock.ErrNoSchema, sqllock.ErrUnsupported, context.DeadlineExceeded, held, errors.New("the driver's"),
	} {
		for what, test := range map[string]struct {
			fails []string      // what does not succeed after the acquisition
			work  time.Duration // what f takes
			cause func(err error) error
			is    []error // what the error is all the same
		}{
			"a release": {fails: []string{"release", "settle"}, cause: func(err error) error {
				if failed := new(sqllock.ReleaseError); errors.As(err, &failed) {
					return failed.Err
				}

				return nil
			}},
			"a loss": {fails: []string{"renew", "check", "release", "settle"}, work: time.Minute, is: []error{sqllock.ErrLost}, cause: func(err error) error {
				if lost := new(sqllock.LostError); errors.As(err, &lost) {
					return lost.Err
				}

				return nil
			}},
		} {
			t.Run(fmt.Sprintf("%s/%s", what, cause), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					memory, locker := setup(t)

					err := locker.Do(t.Context(), name, func(context.Context, *sqllock.Lock) error {
						for _, operation := range test.fails {
							memory.Fail(operation, 1000, sqllocktest.Before, fmt.Errorf("somewhere: %w", cause))
						}

						time.Sleep(test.work)

						return nil
					})

					if why := test.cause(err); why == nil || !strings.Contains(why.Error(), cause.Error()) {
						t.Errorf("Do() = %v, want an error with the cause", err)
					}

					if errors.Is(err, cause) || errors.As(err, new(*sqllock.HeldError)) || errors.As(err, new(*strategies.HeldError)) {
						t.Errorf("Do() = %v, which matches %v though f ran", err, cause)
					}

					wantIs(t, "Do()", err, test.is...)
					memory.Reset()
				})
			})
		}
	}
}
