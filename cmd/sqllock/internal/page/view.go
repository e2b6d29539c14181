package page

import (
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// Locks is what was seen in the database at one time.
type Locks struct {
	// Locks are those that are held, and those names that are taken though nobody holds them.
	Locks []sqllock.Status
	// Waiters are those who wait, by name and then in the order of arrival.
	Waiters []sqllock.Waiter
	// Pause says that nothing is granted after a fail-over, until when and why; empty if locks are granted. Left is how long it lasts.
	Pause string
	Left  time.Duration
}

// most bounds how many rows a table has.
const most = 500

// view is some of the locks, as tables show them.
type view struct {
	Held, Taken []sqllock.Status
	Line        []place

	Holders, Waiters, Kept int // how many there are, shown or not
	Oldest                 time.Duration
	Pause                  string

	// Slots, Shared: there is one that has a slot above 0, or is shared.
	Slots, Shared, SharedWaiters bool

	permits map[string]bool // names with slots above 0
}

// place is one in the line for a name.
type place struct {
	sqllock.Waiter

	Behind []string // those who hold the name
	Before int      // how many are in line before it
	Holds  []string // other names that its process holds, under which it waits if HoldsOthers
}

// mostBehind bounds how many holders are listed for each who waits.
const mostBehind = 2

// viewOf is a view of the names that are wanted.
func viewOf(locks Locks, wanted func(name string) bool) view {
	v := view{permits: map[string]bool{}, Pause: locks.Pause}

	holders := map[string][]string{}
	holding := map[sqllock.Holder][]string{}

	for _, lock := range locks.Locks {
		if lock.Held() {
			holders[lock.Name] = append(holders[lock.Name], lock.Holder.String())

			by := process(lock.Holder)
			if !slices.Contains(holding[by], lock.Name) {
				holding[by] = append(holding[by], lock.Name)
			}
		}

		if wanted(lock.Name) {
			v.lock(lock)
		}
	}

	for _, w := range locks.Waiters {
		if wanted(w.Name) {
			v.waiter(w, holders[w.Name], holding[process(w.Holder)])
		}
	}

	return v
}

// process is that of a holder, whatever its label.
func process(h sqllock.Holder) sqllock.Holder { return sqllock.Holder{Host: h.Host, PID: h.PID} }

func (v *view) lock(lock sqllock.Status) {
	if lock.Slot > 0 {
		v.Slots, v.permits[lock.Name] = true, true
	}

	if !lock.Held() {
		if v.Kept++; len(v.Taken) < most {
			v.Taken = append(v.Taken, lock)
		}

		return
	}

	v.Shared = v.Shared || lock.Shared

	if v.Holders++; len(v.Held) < most {
		v.Held = append(v.Held, lock)
	}
}

func (v *view) waiter(w sqllock.Waiter, behind, holds []string) {
	v.Oldest = max(v.Oldest, w.Waited)
	v.SharedWaiters = v.SharedWaiters || w.Shared

	if v.Waiters++; len(v.Line) == most {
		return
	}

	p := place{Waiter: w, Before: w.Place - 1, Behind: behind}

	if more := len(behind) - mostBehind; more > 0 {
		p.Behind = append(slices.Clone(behind[:mostBehind]), fmt.Sprintf("and %d more", more))
	}

	p.Holds = slices.DeleteFunc(slices.Clone(holds), func(name string) bool { return name == w.Name })

	v.Line = append(v.Line, p)
}

// Permits says whether a name has slots above 0 that are taken.
func (v view) Permits(name string) bool { return v.permits[name] }

// More says how many of all are not among so many rows.
func (view) More(all, rows int) int { return all - rows }
