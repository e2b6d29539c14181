package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
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

func TestRetryable(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{&sqllock.HeldError{Name: name}, true},
		{errors.Join(&sqllock.HeldError{Name: name}, context.DeadlineExceeded), true},
		{sqllock.ErrUnreachable, true},
		{sqllock.ErrTooManyConnections, true},
		{sqllock.ErrReadOnly, true},
		{&sqllock.DeadlockError{Name: name}, false}, // it matches ErrNotAcquired, too
		{&sqllock.LostError{Name: name, Err: sqllock.ErrUnreachable}, false},
		{&sqllock.ReleaseError{Name: name, Err: sqllock.ErrUnreachable}, false},
		{errors.Join(sqllock.ErrNotAcquired, sqllock.ErrReleased), false}, // under the context of a lock that has ended
		{sqllock.ErrClosed, false},
		{sqllock.ErrInvalidOption, false},
		{sqllock.ErrNoSchema, false},
		{sqllock.ErrNotAllowed, false},
		{sqllock.ErrUnsupported, false},
		{context.Canceled, false},
		{errors.New("of the driver"), false},
	} {
		if got := sqllock.Retryable(c.err); got != c.want {
			t.Errorf("Retryable(%v) = %t, want %t", c.err, got, c.want)
		}
	}
}

// TestOptionErrors looks at the options that are refused, and at what is said of them.
func TestOptionErrors(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		options             []sqllock.LockerOption
		option, value, want string
	}{
		{
			[]sqllock.LockerOption{sqllock.WithLease(time.Millisecond)},
			"WithLease", "1ms",
			"invalid option: WithLease(1ms): a lease lasts at least 100ms, so that a server has time to renew it",
		},
		{
			[]sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{ClockDrift: 0.5})},
			"WithLease", "30s",
			"invalid option: WithLease(30s) is too short for three renewals: at a clock drift of 50 % and a margin of 10ms the lock " +
				"would be given up before the third; use a longer lease or WithoutRenewal",
		},
		{
			[]sqllock.LockerOption{sqllock.WithMinHold(-1)},
			"WithMinHold", "-1ns",
			"invalid option: WithMinHold(-1ns) must be between 0 and 366 days",
		},
		{
			[]sqllock.LockerOption{sqllock.WithMinHold(2), sqllock.WithMaxHold(1)},
			"WithMinHold", "2ns",
			"invalid option: WithMinHold(2ns) is longer than WithMaxHold(1ns)",
		},
		{
			[]sqllock.LockerOption{sqllock.WithLabel("\x00")},
			"WithLabel", "",
			"invalid option: WithLabel: a label is UTF-8 without NUL, at most 255 bytes",
		},
		{
			[]sqllock.LockerOption{sqllock.WithMetadata(map[string]string{"a": "\xff"})},
			"WithMetadata", "",
			`invalid option: WithMetadata: "a": "\xff" is not UTF-8`,
		},
		{
			[]sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{PollMin: time.Microsecond})},
			"WithTuning", "PollMin 1µs, PollMax 50ms",
			"invalid option: WithTuning(PollMin 1µs, PollMax 50ms): PollMin is at least a millisecond and at most PollMax, which is at most 366 days",
		},
	} {
		_, err := sqllock.New(sqllocktest.NewMemory(), c.options...)

		option := new(sqllock.OptionError)
		if !errors.As(err, &option) || !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("New() = %v, want an *OptionError that matches ErrInvalidOption", err)

			continue
		}

		if option.Option != c.option || option.Value != c.value || option.Error() != c.want {
			t.Errorf("option %q with value %q: %q, want %q with value %q: %q",
				option.Option, option.Value, option, c.option, c.value, c.want)
		}
	}

	unsupported := &sqllock.OptionError{Option: "WithMinHold", Reason: "by strategy x on y; use strategy cas", Err: sqllock.ErrUnsupported}
	if got := unsupported.Error(); got != "WithMinHold: not supported by strategy x on y; use strategy cas" {
		t.Errorf("Error() = %q", got)
	}
}

// TestRefusedByTheirLimits: what is asked of a lock or a locker that it cannot do.
func TestRefusedByTheirLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, locker)
		ctx := t.Context()

		wantOption(t, "Extend(0)", lock.Extend(ctx, 0),
			`extend lock "the lock": invalid option: Extend(0s): a lease lasts at least 100ms, so that a server has time to renew it`)
		wantOption(t, "Extend(367 days)", lock.Extend(ctx, 367*24*time.Hour),
			`extend lock "the lock": invalid option: Extend(8808h0m0s): a lease lasts at most 366 days; `+
				`a shorter lease is enough, if it is renewed`)

		for want, err := range map[string]error{
			`force release of lock "the lock": invalid option: the reason is empty`:                                                                     locker.ForceRelease(ctx, sqllock.Status{Name: name}, ""),
			`reap: invalid option: the interval 0s is not between 1ms and 366 days`:                                                                     locker.RunReaper(ctx, 0, time.Hour),
			`guard lock "the lock": not supported: the transaction is in elsewhere, but the lock is in memory`:                                          lock.Guard(ctx, elsewhere{}),
			`lock "plain": ReleaseTx is not supported by strategy plain on memory; let what you write to compare the lock's token, or use strategy cas`: plainly(t, memory).ReleaseTx(ctx, memory.Begin()),
			`sqllock: WithLease(600h0m0s): not supported by strategy short on memory, whose server carries at most ` +
				`24 days 20 h; a shorter lease is enough, if it is renewed`: refusal(short{memory}, sqllock.WithLease(600*time.Hour)),
		} {
			if err == nil || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
	})
}

type elsewhere struct{}

func (elsewhere) Database() string { return "elsewhere" }

// plainly acquires with a strategy that can do no more than it has to.
func plainly(t *testing.T, memory *sqllocktest.Memory) *sqllock.Lock {
	t.Helper()

	lock, err := newLocker(t, plain{memory.Peer()}).Acquire(t.Context(), "plain")
	if err != nil {
		t.Fatalf("Acquire() = %v, want the lock", err)
	}

	return lock
}

// short has a limit of the lease, as strategies have whose locks sessions hold.
type short struct{ strategies.Strategy }

func (short) Features() strategies.Features {
	return strategies.Features{Strategy: "short", Database: "memory", MaxLease: 2147483 * time.Second}
}

func refusal(strategy strategies.Strategy, options ...sqllock.LockerOption) error {
	_, err := sqllock.New(strategy, options...)

	return err
}

func TestWaitErrorNamesTheLockOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		acquire(t, newLocker(t, memory.Peer(), sqllock.WithLabel("nightly")))

		_, err := newLocker(t, memory).Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second))

		const begins = `lock "the lock" not acquired: gave up after 1s; held by nightly (`
		if err == nil || !strings.HasPrefix(err.Error(), begins) {
			t.Errorf("Acquire() = %v, want %q and more", err, begins)
		}
	})
}

// A guard that outlives its lock is named, and nobody is said to hold the lock.
func TestWaitErrorBesideAGuard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		tx := memory.Begin()

		defer func() { _ = tx.Rollback() }()

		if err := acquire(t, locker, sqllock.WithoutRenewal()).Guard(t.Context(), tx); err != nil {
			t.Fatal(err)
		}

		time.Sleep(lease)

		const guarded = "nobody is known to hold it (an open transaction guards it: see \"sqllock show\")"

		_, err := newLocker(t, memory.Peer()).Acquire(t.Context(), name, sqllock.WithMaxWait(time.Minute))
		if want := `lock "the lock" not acquired: gave up after 1m0s; ` + guarded; err == nil || err.Error() != want {
			t.Errorf("Acquire() = %v, want %q", err, want)
		}

		wantIs(t, "Acquire()", err, sqllock.ErrUnreachable)
		wantNot(t, "Acquire()", err, sqllock.ErrNotAcquired)

		_, err = newLocker(t, memory.Peer()).TryAcquire(t.Context(), name)
		if want := `lock "the lock" not acquired: ` + guarded; err == nil || err.Error() != want {
			t.Errorf("TryAcquire() = %v, want %q", err, want)
		}
	})
}
