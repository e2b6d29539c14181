package sqllock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// An error is one line that does nothing to a terminal, whatever others wrote.
func TestErrorsArePlain(t *testing.T) {
	t.Parallel()

	const evil = "a\x1b[31mb\nc\x1b]0;d\a"

	for _, err := range []error{
		&sqllock.HeldError{Name: evil, Holder: sqllock.Holder{Host: evil, PID: 1, Label: evil}, Detail: evil},
		&sqllock.LostError{Name: evil, Reason: sqllock.ReasonForced, Detail: evil, Err: errors.Join(errUnreachable, errUnreachable)},
	} {
		if text := err.Error(); strings.ContainsAny(text, "\x1b\n\a") || !strings.Contains(text, `a\x1b[31mb\nc`) {
			t.Errorf("Error() = %q, want its control characters escaped", text)
		}
	}
}

func TestWaitErrorNamesTheLockOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		acquire(t, newLocker(t, memory.Peer(), sqllock.WithLabel("nightly")))

		_, err := newLocker(t, memory).Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second))

		const begins = `lock "the lock" not acquired: the longest wait allowed is over; it is held by nightly (`
		if err == nil || !strings.HasPrefix(err.Error(), begins) {
			t.Errorf("Acquire() = %v, want %q and more", err, begins)
		}
	})
}
