package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// Mark records a number with the name, for those who have the lock later: [Locker.Inspect] tells it as Status.Mark. It only grows:
// a number that is smaller than the recorded one changes nothing, and is no error. It must be larger than zero. Package once uses it
// for the time of the latest job that was done.
//
// The mark stays when the lock is released or lost. It goes with the row of an idle name ([Locker.Reap], [Tuning]), but no
// row is removed before 366 days after the time that its mark is, in microseconds since 1970. With [WithPermits] each slot has a mark
// of its own: see [SlotName].
//
// Call Mark before [Lock.Release], and after the end of a transaction that guards the lock ([Lock.Guard]): on SQLite it cannot write
// beside one. It works though ctx has ended, and takes at most some seconds. After [Lock.MarkTx] it only looks whether the
// transaction has committed, and is an error if not.
//
// Errors: a *[LostError] if another has acquired the lock since, or it was taken away: then the mark is not recorded. It may be one,
// too, if only the lease has ended. [ErrReleased]; [ErrInvalidOption] if the mark is not larger than zero; [ErrUnsupported] if the
// strategy keeps no marks, or the lock is shared. After any other error the mark may be recorded or not, and Mark may be called
// again. A mark that was not recorded is logged, too.
func (l *Lock) Mark(ctx context.Context, mark int64) error {
	return l.each(func(h *hold) error {
		const verb = "mark"

		if err := checkContext(ctx, verb); err != nil {
			return err
		}

		l.mu.Lock()
		released := l.released
		l.mu.Unlock()

		if released {
			return fmt.Errorf("%s lock %q: %w", verb, h.name, ErrReleased)
		}

		noter, err := h.marks(mark)
		if err != nil {
			return err
		}

		inTx := h.view().freed
		recorded, err := h.record(context.WithoutCancel(ctx), noter, mark, inTx)

		message := "mark not recorded"
		failed := func(err error) error { return fmt.Errorf("%s lock %q: %w", verb, h.name, outOfTime(err)) }

		switch {
		case errors.Is(err, strategies.ErrBusy):
			err = failed(fmt.Errorf("%w; if that is your own, call Mark after its commit, or MarkTx in it", err))
		case err != nil:
			err = failed(err)
		case recorded:
			return nil
		case inTx:
			// It will be, if that was MarkTx and the transaction commits.
			message = "mark not recorded yet"
			err = failed(errors.New("the transaction that releases it has not committed, or records no mark; use MarkTx in it"))
		default:
			err = &LostError{
				Name: h.name, Token: h.grant.Token, Reason: ReasonUnknown,
				Detail: "it is another's, or was released, before its mark was recorded",
			}
		}

		// A scheduler may drop the error.
		h.locker.logger.WarnContext(ctx, message, "name", h.name, "token", h.grant.Token, "mark", mark, "error", err)

		return err
	})
}

// MarkTx is [Lock.ReleaseTx], and records a mark as [Lock.Mark] does, in the same transaction: what that wrote, the mark and the
// release are committed together, or none of them is. Make it the last statement of the transaction. Errors are those of ReleaseTx,
// and [ErrInvalidOption] if the mark is not larger than zero.
func (l *Lock) MarkTx(ctx context.Context, tx strategies.Tx, mark int64) error {
	if l == nil {
		return errNilLock
	}

	if _, err := l.hold.marks(mark); err != nil {
		return err
	}

	return l.releaseAllTx(ctx, tx, "MarkTx", mark)
}

// marks returns the strategy, if the lock can have the mark.
func (h *hold) marks(mark int64) (noter strategies.Noter, err error) {
	switch {
	case mark <= 0:
		err = fmt.Errorf("%w: the mark %d is not larger than zero", ErrInvalidOption, mark)
	case h.readers != nil:
		err = fmt.Errorf("%w for shared locks", ErrUnsupported)
	default:
		noter, err = h.locker.noter()
	}

	if err != nil {
		return nil, fmt.Errorf("mark lock %q: %w", h.name, err)
	}

	return noter, nil
}

// record records the mark, or looks whether a transaction did. If an answer is lost it does so again, which does no harm.
func (h *hold) record(ctx context.Context, noter strategies.Noter, mark int64, inTx bool) (recorded bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()

	pinned, name := h.view().pinned, h.request.Name // that of the slot, if it has permits

	for try := range releaseTries {
		recorded, err = call.Limited(ctx, releaseTimeout/2, func(ctx context.Context) (bool, error) {
			if !inTx {
				return noter.Mark(ctx, name, h.owner(), mark)
			}

			notes, err := noter.Notes(ctx, name)

			return notes.Mark >= mark, err
		})

		// What is in the way of a lock that was guarded may be the transaction of the caller, who cannot end it meanwhile.
		if err == nil || isAnswer(err) || pinned && errors.Is(err, strategies.ErrBusy) {
			break
		}

		sleep(ctx, backoff(try, firstRetry, lastRetry))
	}

	return recorded, err
}
