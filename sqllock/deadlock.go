package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/sqllock/sqllock/internal/around"
	"github.com/sqllock/sqllock/strategies"
)

// A deadlock is a cycle of waits: each is for a lock that is held where the next one waits.
// Every process looks for those that end with a wait of its own, and ends one wait of each: the youngest of
// those for several names, which begin again, or else the youngest.

// innermost is the context key under which the context of a lock has itself, whatever
// the locker and the name. The context below has that of the lock around it.
type innermost struct{}

// mostOwners bounds how many locks a wait tells of, the innermost first. It is more than several names are. The column has
// place for so many with yielding before each, which says of a lock that it can be given back.
const (
	mostOwners = MaxNames + 40
	yielding   = "+"
)

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
		for _, h := range c.all() {
			if h.isKept() {
				owners = append(owners, yielding+h.owner())
			} else if h.settings.renew && h.settings.maxHold == 0 && h.err() == nil {
				owners = append(owners, h.owner())
			}
		}
	}

	owners = append(owners, around.Owners(ctx)...)

	return owners[:min(len(owners), mostOwners)]
}

// look ends the waits of deadlocks that can give back their lock, or else are the youngest, if they were so
// before: a holder may just have released what the next one waits for.
func (w *waiters) look(known []*waiting) {
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

	waits := waitGraph(all)

	for _, waiter := range all {
		one := suspects[waiter.ID]
		if one == nil || waiter.Process != w.process {
			continue
		}

		cycle, yields := waits.cycle(waiter)
		seen := one.cycle
		one.cycle = signature(cycle)

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

func waitGraph(all []strategies.Waiter) graph {
	g := graph{}

	for _, w := range all {
		for _, owner := range w.Holding {
			owner, yields := strings.CutPrefix(owner, yielding)
			g[owner] = append(g[owner], holding{w, yields})
		}
	}

	return g
}

// cycle returns a cycle in which w is to end its wait, beginning with w, and whether the lock of w in it is one that it can give
// back; nil if there is none. Each holds what the one before waits for.
func (g graph) cycle(w strategies.Waiter) (cycle []strategies.Waiter, yields bool) {
	if cycle = g.cycleOf(holding{w, true}); cycle != nil {
		return cycle, true
	}

	return g.cycleOf(holding{w, false}), false
}

func (g graph) cycleOf(w holding) []strategies.Waiter {
	seen := map[string]bool{}

	var from func(path []strategies.Waiter) []strategies.Waiter

	from = func(path []strategies.Waiter) []strategies.Waiter {
		last := path[len(path)-1]
		if last.Owner == "" {
			return nil
		}

		for _, next := range g[last.Owner] {
			switch {
			case next.ID == w.ID && next.yields == w.yields:
				return path
			case next.ID == w.ID, seen[next.ID], next.before(w):
				continue
			}

			seen[next.ID] = true

			if found := from(append(path, next.Waiter)); found != nil {
				return found
			}
		}

		return nil
	}

	return from([]strategies.Waiter{w.Waiter})
}

// before says whether one ends its wait rather than w: it can give back its lock, or else it is younger.
func (next holding) before(w holding) bool {
	if next.yields != w.yields {
		return next.yields
	}

	return cmp.Or(cmp.Compare(next.Ticket, w.Ticket), cmp.Compare(next.ID, w.ID)) > 0
}

// signature tells a cycle from another one.
func signature(cycle []strategies.Waiter) string {
	var b strings.Builder

	for _, w := range cycle {
		fmt.Fprintf(&b, "%s %s ", w.ID, w.Owner)
	}

	return b.String()
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

	if e.oneName() {
		b.WriteString("release the lock before you ask for the same name again")
	} else {
		b.WriteString("acquire them in the same order everywhere")
	}

	return b.String()
}

// oneName says whether all of them wait for the same name, which each holds: as a reader, or in another locker.
func (e *DeadlockError) oneName() bool {
	for _, w := range e.Cycle {
		if w.Name != e.Cycle[0].Name {
			return false
		}
	}

	return true
}

// Is reports whether target is ErrDeadlock or ErrNotAcquired.
func (*DeadlockError) Is(target error) bool { return target == ErrDeadlock || target == ErrNotAcquired }
