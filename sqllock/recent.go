package sqllock

import (
	"maps"
	"sync"
	"time"
)

// recent keeps something in mind about names for a while.
type recent[V any] struct {
	mu      sync.Mutex
	entries map[string]remembered[V]
	sweep   int // from how many entries on those that are over are looked for
}

type remembered[V any] struct {
	value V
	until time.Time
}

// fewEntries need no sweep.
const fewEntries = 256

func (r *recent[V]) put(name string, value V, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.entries) >= max(r.sweep, fewEntries) {
		n := time.Now()

		maps.DeleteFunc(r.entries, func(_ string, e remembered[V]) bool { return !n.Before(e.until) })

		r.sweep = 2 * len(r.entries)
	}

	if r.entries == nil {
		r.entries = make(map[string]remembered[V])
	}

	r.entries[name] = remembered[V]{value, until}
}

// get returns what is known, and for how long still: zero or less if it is not.
func (r *recent[V]) get(name string) (V, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	e, ok := r.entries[name]
	if !ok {
		return e.value, 0
	}

	return e.value, time.Until(e.until)
}
