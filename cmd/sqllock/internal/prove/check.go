package prove

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// checks makes a case of each check.
func (h *history) checks(t *testing.T, wanted func(string) bool, witness *sqllock.Locker) {
	t.Helper()

	for _, c := range []struct {
		name  string
		least int // of grants, to say anything
		found func(t *testing.T) []string
	}{
		{checkWindows, leastGrants, func(*testing.T) []string { return overlaps(h.grants) }},
		{checkTokens, leastGrants, func(*testing.T) []string { return disorder(h.grants) }},
		{checkGuard, leastGrants, h.lost},
		{checkClose, 1, h.left},
		{checkFree, 1, func(t *testing.T) []string {
			t.Helper()

			return h.taken(t, witness)
		}},
	} {
		if !wanted(historyPrefix + c.name) {
			continue
		}

		t.Run(c.name, func(t *testing.T) {
			if len(h.grants) < c.least {
				t.Skipf("%s%d grants in %s are too few", notSetUp, len(h.grants), h.lasts)
			}

			// One is enough to know, and a few to understand.
			const shown = 3

			found := c.found(t)
			for _, said := range found[:min(len(found), shown)] {
				t.Error(said)
			}

			if more := len(found) - shown; more > 0 {
				t.Errorf("and %d more", more)
			}
		})
	}
}

// overlaps are grants of one name whose holders held it at the same time, each by its own word.
func overlaps(grants []*grant) (found []string) {
	sorted := slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return a.returned.Compare(b.returned) })
	last := map[string]*grant{}

	for _, g := range sorted {
		before := last[g.name]

		if before != nil && before.until.After(g.returned) {
			found = append(found, fmt.Sprintf("%s: token %d was granted, and the holder of token %d still held it, by its own word, %s later",
				g.name, g.token, before.token, before.until.Sub(g.returned)))
		}

		if before == nil || g.until.After(before.until) {
			last[g.name] = g
		}
	}

	return found
}

// disorder are grants that were asked for after another was there and have no larger token.
func disorder(grants []*grant) (found []string) {
	byCall := slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return a.called.Compare(b.called) })
	byReturn := slices.SortedFunc(slices.Values(grants), func(a, b *grant) int { return a.returned.Compare(b.returned) })
	largest, seen := map[string]int64{}, map[string]map[int64]bool{}

	for _, g := range byCall {
		for len(byReturn) > 0 && byReturn[0].returned.Before(g.called) {
			earlier := byReturn[0]
			largest[earlier.name] = max(largest[earlier.name], earlier.token)
			byReturn = byReturn[1:]
		}

		if g.token <= largest[g.name] {
			found = append(found, fmt.Sprintf("%s: token %d was granted after token %d", g.name, g.token, largest[g.name]))
		} else if seen[g.name][g.token] {
			found = append(found, fmt.Sprintf("%s: token %d was granted twice", g.name, g.token))
		}

		if seen[g.name] == nil {
			seen[g.name] = map[int64]bool{}
		}

		seen[g.name][g.token] = true
	}

	return found
}

// passed are grants that were there before a guarded transaction of an earlier holder was committed. When it was guarded
// that holder still had the name, so that the guard should have kept it from all others until the commit.
func passed(grants []*grant) (found []string) {
	for _, guarded := range grants {
		for _, g := range grants {
			if g.name == guarded.name && g.token > guarded.token && g.returned.Before(guarded.committing) {
				found = append(found, fmt.Sprintf("%s: token %d was granted %s before a transaction was committed that the holder of token %d had guarded",
					g.name, g.token, guarded.committing.Sub(g.returned), guarded.token))
			}
		}
	}

	return found
}

// lost are guarded writes that others have overwritten, or that came after those of a successor.
func (h *history) lost(t *testing.T) []string {
	t.Helper()

	found := append(slices.Clone(h.late), passed(h.grants)...)

	for _, name := range h.names {
		var value int64
		if err := h.db.QueryRowContext(t.Context(), h.sql("SELECT value FROM "+counterTable+" WHERE name = ?"), name).Scan(&value); err != nil {
			t.Skip(notSetUp + err.Error())
		}

		if least := h.committed[name]; value < least || value > least+h.unknown[name] {
			found = append(found, fmt.Sprintf("%s: %d guarded increments were committed, and the number is %d", name, least, value))
		}
	}

	return found
}

// left are locks of lockers that said, when they were closed, that they have none.
func (h *history) left(t *testing.T) (found []string) {
	t.Helper()

	for _, m := range h.members {
		found = append(found, m.left...)

		if m.closed != nil {
			t.Logf("Close() = %v", m.closed)
		}
	}

	return found
}

// taken are names that nobody can have although nobody is there any more who could hold them.
func (h *history) taken(t *testing.T, witness *sqllock.Locker) (found []string) {
	t.Helper()

	const patience = 20 * time.Second

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	for _, name := range h.names {
		begun := time.Now()

		lock, err := witness.Acquire(ctx, name)
		if err != nil {
			found = append(found, fmt.Sprintf("%s: nobody works any more, and it cannot be had within %s: %v", name, time.Since(begun).Round(time.Millisecond), err))

			continue
		}

		if err := lock.Release(ctx); err != nil {
			found = append(found, fmt.Sprintf("%s: Release() = %v", name, err))
		}
	}

	return found
}
