package failover_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sqllock/sqllock/sqllock"
)

// witness sees all grants of a run, and whether two trust the same at the same time.
//
// It need not know when anything was granted. A lock that comes is trusted while the witness asks those that are there
// already, so what it says of two is true of one moment. It forgets a lock before that is released.
type witness struct {
	mutex  sync.Mutex
	claims map[place][]claim
	latest map[place]grant // of all that were ever granted
	counts map[string]*count
	faults []string // besides second holders
}

// place is what one can have, or its readers: a name, or a slot of its permits.
type place struct {
	name string
	slot int
}

type claim struct {
	lock   *sqllock.Lock
	shared bool
}

type grant struct {
	token  int64
	shared bool
}

// count is what is said of a mode: a strategy, and what is asked for.
type count struct {
	failOvers, grants, seconds int
	told, late                 int // lost locks: a renewal told of the loss; there was no time for one
	kept, expired              int // locks that the standby had heard of, after each fail-over
}

func newWitness() *witness {
	return &witness{claims: map[place][]claim{}, latest: map[place]grant{}, counts: map[string]*count{}}
}

// count changes what is said of a mode.
func (w *witness) count(mode string, change func(*count)) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	change(w.countLocked(mode))
}

func (w *witness) countLocked(mode string) *count {
	if w.counts[mode] == nil {
		w.counts[mode] = &count{}
	}

	return w.counts[mode]
}

// fault notes what must not be, besides a second holder.
func (w *witness) fault(format string, arguments ...any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	w.faults = append(w.faults, fmt.Sprintf(format, arguments...))
}

// granted takes note of a lock. It returns what is trusted beside it, and how many second holders the mode has had.
func (w *witness) granted(mode string, lock *sqllock.Lock, shared bool) (beside []*sqllock.Lock, seconds int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	count := w.countLocked(mode)
	count.grants++

	for _, name := range lock.Names() {
		at := place{name, lock.Slot()}

		for _, other := range w.claims[at] {
			if (!shared || !other.shared) && other.lock.Err() == nil && lock.Err() == nil {
				beside = append(beside, other.lock)
			}
		}

		w.claims[at] = append(w.claims[at], claim{lock, shared})

		token, last := lock.TokenOf(name), w.latest[at]
		if joins := shared && last.shared; token < last.token || token == last.token && !joins {
			w.faults = append(w.faults, fmt.Sprintf("%s: %q, slot %d: token %d after %d", mode, name, at.slot, token, last.token))
		}

		w.latest[at] = grant{max(token, last.token), shared}
	}

	if len(beside) > 0 {
		count.seconds++
	}

	return beside, count.seconds
}

// forget is before the release of a lock, and after its loss.
func (w *witness) forget(lock *sqllock.Lock) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	for _, name := range lock.Names() {
		at := place{name, lock.Slot()}
		w.claims[at] = slices.DeleteFunc(w.claims[at], func(c claim) bool { return c.lock == lock })
	}
}

// sum is what is said of all modes.
func (w *witness) sum() (sum count) {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	for _, c := range w.counts {
		sum.seconds += c.seconds
		sum.told += c.told
		sum.kept += c.kept
	}

	return sum
}

// heading is that of tables.
func heading() string {
	return fmt.Sprintf("%-14s %-15s %10s %7s %14s %5s %9s %5s %8s\n",
		"database", "mode", "fail-overs", "grants", "second holders", "told", "too late", "kept", "expired")
}

// table has a line for each mode.
func (w *witness) table(database string) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()

	var text strings.Builder

	for _, mode := range slices.Sorted(maps.Keys(w.counts)) {
		c := w.counts[mode]
		fmt.Fprintf(&text, "%-14s %-15s %10d %7d %14d %5d %9d %5d %8d\n",
			database, mode, c.failOvers, c.grants, c.seconds, c.told, c.late, c.kept, c.expired)
	}

	return text.String()
}
