package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/internal/around"
	"github.com/sqllock/sqllock/strategies"
)

// A deadlock is a cycle of waits: each is for a lock that is held where the next one waits.
// Every process looks for those that end with a wait of its own, and ends one wait of each: the youngest of
// those for several names, which begin again, or else the youngest.
//
// A lock that an acquisition of several names can give back is in no deadlock, so that there are two kinds of cycles. In one
// over such a lock its owner gives it back. But that helps only if the cycle ends with it: if two who hold a lock each also want
// that of the other, whoever has what both want gives it back to the other, who is then in the same cycle, for ever. So an acquisition
// of several names says from its beginning to its end, beside what it waits for just now, that it wants each of its names
// and holds the locks around it (wanting, in [strategies.Waiter.Holding]). A deadlock is a cycle of such waits and of those
// for one name: all of them want all that they want, and no lock in it is given back before an end. So one over locks that were
// acquired with the names is none.
//
// Where several of a cycle can give back, the one does that cannot come to its end before most others, because they hold what it
// wants, whatever is given back. If it were another, those two could go on in turns for ever. So an acquisition that holds nothing
// also says what it wants once it has given back.

// mostOwners bounds how many locks a wait tells of, the innermost first. It is more than several names are. The column has
// place for so many with one of the signs before each. A lock that has none counts for both kinds of cycles.
const (
	mostOwners = MaxNames + 40
	yielding   = "+" // it can be given back
	passing    = "-" // it cannot, but the wait is one of several names, which may give back others and begin again
	wanting    = "=" // it cannot, and the name is one of those several
)

// callDigits is how many digits at the beginning of the IDs of all waits of an acquisition of several names are the same.
const callDigits = 16

// callOf is what all waits of one acquisition have in common.
func callOf(w strategies.Waiter) string { return w.ID[:min(callDigits, len(w.ID))] }

// wants says whether a waiter only says which names it wants beside the one that it waits for.
func wants(w strategies.Waiter) bool {
	return len(w.Holding) > 0 && strings.HasPrefix(w.Holding[0], wanting)
}

// signed has a sign before each owner that has none.
func signed(owners []string, sign string) []string {
	for i, owner := range owners {
		if !strings.HasPrefix(owner, yielding) {
			owners[i] = sign + owner
		}
	}

	return owners
}

// holdsOthers says whether something is held where ctx waits.
func holdsOthers(ctx context.Context) bool {
	_, holds := ctx.Value(innermost{}).(*heldContext)

	return holds || len(around.Owners(ctx)) > 0
}

// owners are those of the locks under whose contexts ctx is, and that stay held for as
// long as it waits.
func owners(ctx context.Context) (owners []string) {
	c, ok := ctx.Value(innermost{}).(*heldContext)

	for ; ok && len(owners) < mostOwners; c, ok = c.outside.Value(innermost{}).(*heldContext) {
		for _, h := range c.holds {
			if h.view().kept {
				owners = append(owners, yielding+h.owner())
			} else if h.settings.renew && h.settings.maxHold == 0 && h.err() == nil {
				owners = append(owners, h.owner())
			}
		}
	}

	owners = append(owners, around.Owners(ctx)...)

	return owners[:min(len(owners), mostOwners)]
}

// endDeadlocks ends the waits of deadlocks that can give back their lock, or else are the youngest, if they were so
// before: a holder may just have released what the next one waits for.
func (w *waiters) endDeadlocks(known []*waiting) {
	suspects := map[string]*waiting{}

	for _, one := range known {
		if len(one.Holding) > 0 {
			suspects[one.ID] = one
		}
	}

	if len(suspects) == 0 {
		return
	}

	all, err := ask(w, func(ctx context.Context) ([]strategies.Waiter, error) {
		return w.queuer.Waiters(ctx, strategies.WaiterFilter{Holding: true})
	})
	if err != nil {
		return
	}

	waits := waitGraphs(all)

	for _, waiter := range all {
		one := suspects[waiter.ID]
		if one == nil || waiter.Process != w.process {
			continue
		}

		cycle, yields := waits.cycle(waiter)
		seen := one.cycle
		one.cycle = ""

		for _, w := range cycle {
			one.cycle += w.ID + " " + w.Owner + " " // tells it from another one
		}

		if len(cycle) > 0 && (yields || one.cycle == seen) {
			setPlaces(cycle)
			one.stop(&DeadlockError{Name: one.Name, Cycle: cycle, owner: cycle[len(cycle)-1].Owner})
		}
	}
}

// graph has those who wait while they hold a lock, by its owner.
type graph map[string][]holding

// holding is one who waits while it holds a lock.
type holding struct {
	strategies.Waiter

	yields bool // it can give the lock back and begin again
}

// graphs are those of the two kinds of cycles.
type graphs struct {
	yields, deadlocks graph

	calls map[string][]strategies.Waiter // by callOf
	ranks map[string]int                 // that were asked for
}

func waitGraphs(all []strategies.Waiter) graphs {
	g := graphs{graph{}, graph{}, map[string][]strategies.Waiter{}, map[string]int{}}

	for _, w := range all {
		g.calls[callOf(w)] = append(g.calls[callOf(w)], w)

		for _, signed := range w.Holding {
			owner := strings.TrimLeft(signed, yielding+passing+wanting)
			sign := signed[:min(1, len(signed)-len(owner))]

			if owner != "" && sign != wanting {
				g.yields[owner] = append(g.yields[owner], holding{w, sign == yielding})
			}

			if owner != "" && (sign == wanting || sign == "") {
				g.deadlocks[owner] = append(g.deadlocks[owner], holding{w, false})
			}
		}
	}

	return g
}

// cycle returns a cycle in which w is to end its wait, beginning with w, and whether the lock of w in it is one that it can give
// back; nil if there is none. Each holds what the one before waits for.
func (g graphs) cycle(w strategies.Waiter) (cycle []strategies.Waiter, yields bool) {
	if cycle = g.from(g.yields, holding{w, true}, nil, map[string]bool{}); cycle != nil {
		return cycle, true
	}

	return g.from(g.deadlocks, holding{w, false}, nil, map[string]bool{}), false
}

// from returns the rest of a cycle that begins with w, of which path is known; nil if there is none over those that are not seen yet.
func (g graphs) from(in graph, w holding, path []strategies.Waiter, seen map[string]bool) []strategies.Waiter {
	if len(path) == 0 {
		path = []strategies.Waiter{w.Waiter}
	}

	for _, next := range in[path[len(path)-1].Owner] {
		switch {
		case next.ID == w.ID && next.yields == w.yields:
			return path
		case next.ID == w.ID, seen[next.ID], g.before(next, w):
			continue
		}

		seen[next.ID] = true

		if found := g.from(in, w, append(path, next.Waiter), seen); found != nil {
			return found
		}
	}

	return nil
}

// rank is how many others an acquisition cannot come to its end before: what it wants is held around them, or around those that
// want what is held around them, and so on.
func (g graphs) rank(call string) int {
	if rank, known := g.ranks[call]; known {
		return rank
	}

	found := map[string]bool{call: true}

	for next := []string{call}; len(next) > 0; next = next[1:] {
		for _, w := range g.calls[next[0]] {
			for _, other := range g.deadlocks[w.Owner] {
				if c := callOf(other.Waiter); !found[c] {
					found[c] = true
					next = append(next, c)
				}
			}
		}
	}

	g.ranks[call] = len(found) - 1

	return g.ranks[call]
}

// before says whether one ends its wait rather than w: it can give back its lock, or else it is younger. The order of those that can
// is that of their ranks, and of their IDs, which stay the same when they begin again.
func (g graphs) before(next, w holding) bool {
	switch {
	case next.yields != w.yields:
		return next.yields
	case w.yields:
		return cmp.Or(cmp.Compare(g.rank(callOf(next.Waiter)), g.rank(callOf(w.Waiter))), cmp.Compare(next.ID, w.ID)) > 0
	}

	return cmp.Or(cmp.Compare(next.Ticket, w.Ticket), cmp.Compare(next.ID, w.ID)) > 0
}

// DeadlockError says that the wait for a lock is one of a cycle: its holder waits, perhaps
// over others, for a lock that is held where this wait was. None of them would have got what
// it waits for before another gave up. It matches [ErrDeadlock] and [ErrNotAcquired]. Release what you
// hold and begin again with the first lock: who waits again while holding it is in the same deadlock.
type DeadlockError struct {
	// Name of the lock that was waited for.
	Name string
	// Cycle is who waits for what, this wait first. Each waits for a lock that the next one
	// holds, and the last for one that the first holds.
	Cycle []Waiter

	owner string // of the lock that the last waits for
}

// Error is one line: who waits for what, and what to do.
func (e *DeadlockError) Error() string {
	var b strings.Builder

	fmt.Fprintf(&b, "lock %q %s, %s: ", e.Name, ErrNotAcquired, ErrDeadlock)

	for i, w := range e.Cycle {
		switch i {
		case 0:
			fmt.Fprintf(&b, "%s waits for %q", w.Holder, w.Name)
		default:
			fmt.Fprintf(&b, ", held by %s, which waits for %q", w.Holder, w.Name)
		}
	}

	if len(e.Cycle) == 1 {
		b.WriteString(", which it holds itself; ")
	} else {
		b.WriteString(", held by the first; ")
	}

	if slices.ContainsFunc(e.Cycle, func(w Waiter) bool { return w.Name != e.Cycle[0].Name }) {
		b.WriteString("acquire them in the same order everywhere")
	} else { // each holds it: as a reader, or in another locker
		b.WriteString("release the lock before you ask for the same name again")
	}

	return b.String()
}

// Is reports whether target is ErrDeadlock or ErrNotAcquired.
func (*DeadlockError) Is(target error) bool { return target == ErrDeadlock || target == ErrNotAcquired }

// setPlaces says of those who wait, listed by name and in the order of arrival, in which place they are.
func setPlaces(listed []Waiter) {
	for i := range listed {
		if listed[i].Place = 1; i > 0 && listed[i-1].Name == listed[i].Name {
			listed[i].Place += listed[i-1].Place
		}
	}
}
