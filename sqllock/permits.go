package sqllock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// A name with permits has slots, each of which is a lock of its own for the strategy:
// strategies.SlotName. Here one of them is chosen that seems to be free. Whoever finds all taken
// waits in the line of the name as for any other lock, and gives the turn in this process to the
// next as soon as it has a slot.

// maxPermitsName is how long a name with permits may be, so that those of its slots are not longer
// than a name may be.
const maxPermitsName = MaxNameLength - strategies.SlotNameLength

// WithPermits lets up to n hold the name at a time. Each of them has a lock as any other, with a
// token, a lease and a guard of its own, and [Lock.Slot] is its number from 0 to n-1, which no other
// holder has. Those who wait get theirs in the order of arrival. The default is 1, at most it is
// [MaxPermits]; names may then have [MaxNameLength] - 5 bytes.
//
// Callers that differ in n, while a new version is rolled out, exclude each other in the slots that
// both know: the larger n bounds how many there are in all. A lock without permits is one with a
// single permit, in slot 0. Tokens grow within a slot, and two slots may have the same token: to
// refuse late writers, remember the largest token of each slot. A lock with permits is not handed on within a
// process, and no deadlock is found over it. Errors: [ErrInvalidOption]; [ErrUnsupported] by the strategy; the call is [ErrInvalidName] if
// the name is too long.
func WithPermits(n int) LockOption {
	return lockOption(func(s *settings) error {
		if n < 1 || n > MaxPermits {
			return badOption("WithPermits", fmt.Sprint(n), "must be between 1 and %d", MaxPermits)
		}

		s.permits = n

		return nil
	})
}

// SlotName names one of the permits of [WithPermits] for [Locker.Inspect]: slot is its number, from 0 to [MaxPermits] - 1. The first one
// has the name itself. The others have it with U+001F and the number behind it. No lock can have such a name: a call
// that acquires it is [ErrInvalidName], so that a slot is never taken for another lock. With any other slot Inspect is ErrInvalidName, too.
func SlotName(name string, slot int) string { return strategies.SlotName(name, slot) }

// splitSlotName returns the name and the slot that SlotName made one of, or says why it is neither that nor a lock's.
func splitSlotName(slotName string) (name string, slot int, err error) {
	name, slot = strategies.SplitSlot(slotName)
	if slot < 0 || slot >= MaxPermits || strategies.SlotName(name, slot) != slotName {
		return "", 0, fmt.Errorf("%w: %q is not that of a slot: those are from 0 to %d", ErrInvalidName, slotName, MaxPermits-1)
	}

	return name, slot, checkName(name)
}

// anySlot is none in particular.
const anySlot = -1

// takeSlot takes the turn of a slot that nobody here deals with, and that is not among those taken: of the one that is wished for, if
// it can be; false if there is none.
func (a *acquisition) takeSlot(taken map[int]strategies.Status) (slotName string, ok bool) {
	first := a.wish
	if first == anySlot {
		first = rand.IntN(a.set.permits)
	}

	for i := range a.set.permits {
		slot := (first + i) % a.set.permits
		slotName = strategies.SlotName(a.request.Name, slot)

		if _, others := taken[slot]; !others {
			if _, ok = a.locker.turns.tryEnter(a.set.turnOf(slotName)); ok {
				return slotName, true
			}
		}
	}

	return "", false
}

// slotTries is how many slots an attempt asks for before it goes into line. A try asks for all that are free.
const slotTries = 3

// askNameOrSlot asks for the name, or for one of its slots, and says when it began. The request is returned as it was made, with the
// name of the slot. An error comes with a slot that is not used.
func (a *acquisition) askNameOrSlot(wait context.Context) (grant strategies.Grant, request strategies.Request, start instant, err error) {
	if !a.set.many() {
		return a.askFor(wait, a.request.Name)
	}

	var (
		taken   map[int]strategies.Status
		refused []int // a transaction may have the row of one that is free locked
	)

	for try := 1; ; try++ {
		// Its turn says that some slot is free, and not which.
		if try > 1 || a.request.First && a.wish == anySlot {
			ctx, cancel := context.WithTimeout(wait, longest(a.set))
			taken, err = a.locker.taken(ctx, a.request.Name)
			a.timedOut = ctx.Err() != nil && wait.Err() == nil

			cancel()

			if err != nil {
				return grant, a.request, now(), fmt.Errorf("%w: %w", strategies.ErrNotSent, err)
			}

			for _, slot := range refused {
				if _, known := taken[slot]; !known {
					taken[slot] = strategies.Status{}
				}
			}
		}

		slotName, ok := a.takeSlot(taken)
		if !ok && taken == nil {
			continue // all are this locker's, and who exactly has them is told by the database
		}

		if !ok {
			return grant, a.request, now(), a.noSlot(taken)
		}

		grant, request, start, err = a.askFor(wait, slotName)
		if err == nil {
			return grant, request, start, nil
		}

		a.locker.turns.leave(a.set.turnOf(slotName), nil)

		held := new(strategies.HeldError)
		if !errors.As(err, &held) || held.Recovering {
			return grant, request, start, err
		}

		_, slot := strategies.SplitSlot(slotName)
		held.Name, a.wish = a.request.Name, anySlot
		refused = append(refused, slot)

		switch {
		case held.Line != 0:
			a.wish = slot // what is found out about the line is about this one

			return grant, request, start, held
		case try >= slotTries && !a.try:
			return grant, request, start, held
		}
	}
}

// noSlot is the answer if there is no slot to ask for. A try that is not refused by holders of all slots asks again for a while.
func (a *acquisition) noSlot(taken map[int]strategies.Status) error {
	held := allTaken(a.request.Name, a.set.permits, taken)

	switch asked := held.Line != 0; {
	case a.try && (asked || slices.Contains(slices.Collect(maps.Values(taken)), strategies.Status{})):
		return &HeldError{Name: a.request.Name, Detail: "a permit is free, and others ask for it"}
	case asked:
		// What the database has free is asked for, or was just released, by others of this process.
		held.Line, held.Holder, held.Detail = 0, a.request.Holder, "all permits are this process's, or taken"
	}

	return held
}

// taken returns who has the slots of a name.
func (l *Locker) taken(ctx context.Context, name string) (map[int]strategies.Status, error) {
	listed, err := call.Within(ctx, func(ctx context.Context) ([]strategies.Status, error) {
		return l.strategy.List(ctx, strategies.Filter{Name: name})
	})
	if err != nil {
		return nil, err
	}

	taken := make(map[int]strategies.Status, len(listed))

	for _, status := range listed {
		_, slot := strategies.SplitSlot(status.Name)
		taken[slot] = status
	}

	return taken, nil
}

// allTaken is the answer to who cannot have one of n slots. It names the holder whose lease ends first. If
// some are free, others in line come first.
func allTaken(name string, n int, taken map[int]strategies.Status) *HeldError {
	held := &HeldError{Name: name}
	count := 0

	for slot, status := range taken {
		if slot >= max(1, n) {
			continue
		}

		// Of some nothing is known but that they could not be had.
		left := status.Remaining + status.Taken
		if count++; held.Remaining == 0 || left > 0 && left < held.Remaining {
			held.Token, held.Remaining, held.Shared, held.Holder = status.Token, left, status.Shared, strategies.Holder{}

			if status.Remaining > 0 {
				held.Holder = status.Holder
			}
		}
	}

	switch {
	case count < max(1, n):
		return &HeldError{Name: name, Line: 1}
	case n == 2:
		held.Detail = "both permits are taken"
	case n > 2:
		held.Detail = fmt.Sprintf("all %d permits are taken", n)
	}

	return held
}
