//go:build unix

package stress

import (
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// Names of the locks: two that differ by case alone, and some that are hard to spell.
var names = []string{
	"invoice-1", "Invoice-1", "nightly", "kund:in-ü", "customer 7 ", "customer 7", "a/b/c", "%_'\"\\", "report", "import", "export", "mail",
	pool, strategies.SlotName(pool, 1), book,
}

// pool is a name with two permits. Each of its slots is a name of its own in histories, but in the line.
const (
	pool    = "pool"
	permits = 2
)

// book is a name that has readers, too.
const book = "book"

// askFor returns what is asked for to have one of the names; if that has permits it may be another slot.
func askFor(name string) (asked string, options []sqllock.LockOption) {
	asked, _ = strategies.SplitSlot(name)
	if asked == pool {
		options = append(options, sqllock.WithPermits(permits))
	}

	return asked, options
}
