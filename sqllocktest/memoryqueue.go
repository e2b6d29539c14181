package sqllocktest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// memoryPlace is what a waiter is found by.
type memoryPlace struct{ process, id string }

// memoryWaiter is one who waits, until its process says so no more.
type memoryWaiter struct {
	strategies.Waiter

	came, expires time.Time
}

// Enqueue puts waiters into their lines.
func (m *Memory) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) (taken []bool, errs []error) {
	taken, errs = make([]bool, len(all)), make([]error, len(all))

	operation := "enqueue"
	if len(all) > 1 {
		operation = "enqueue-all"
	}

	err := m.do(ctx, operation, func(now time.Time) error {
		m.store.ticket = max(m.store.ticket+1, now.Add(-all[0].Waited).UnixMicro())

		for i, w := range all {
			taken[i] = m.store.enqueue(now, w, ttl)
		}

		return nil
	})

	for i := range errs {
		errs[i] = err
	}

	return taken, errs
}

// enqueue puts w into line with the last ticket, and says whether the name is taken.
func (s *memoryStore) enqueue(now time.Time, w strategies.Waiter, ttl time.Duration) (taken bool) {
	place := memoryPlace{w.Process, w.ID}

	noted, known := s.queue[place]
	if !known || noted.Behind {
		w.Ticket = s.ticket
		noted = memoryWaiter{Waiter: w, came: now.Add(-w.Waited)}
	}

	noted.Behind, noted.expires = w.Behind, now.Add(ttl)
	s.queue[place] = noted

	for _, name := range strategies.SlotNames(w.Name, w.Slots) {
		if !w.Behind {
			row := s.row(name)
			row.waiting = max(row.waiting+1, now.UnixMicro())
			taken = row.unfree(now) > 0
		}
	}

	return taken && w.Slots <= 1
}

// all are those in line for a name, and those behind others of their process.
func (s *memoryStore) all(name string, line []memoryWaiter) (all []strategies.Waiter) {
	for _, w := range line {
		all = append(all, w.Waiter)
	}

	for _, w := range s.queue {
		if w.Name == name && w.Behind {
			all = append(all, w.Waiter)
		}
	}

	return all
}

// lineOf is the name in whose line those wait who wait for a slot.
func lineOf(slotName string) string {
	name, _ := strategies.SplitSlot(slotName)

	return name
}

// line returns those in line for a name, in their order.
func (s *memoryStore) line(now time.Time, name string) (line []memoryWaiter) {
	for _, w := range s.queue {
		if w.Name == name && !w.Behind && now.Before(w.expires) {
			line = append(line, w)
		}
	}

	slices.SortFunc(line, func(a, b memoryWaiter) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), strings.Compare(a.ID, b.ID))
	})

	return line
}

// Stand says how those of a process stand, and keeps them if ttl is not zero.
func (m *Memory) Stand(ctx context.Context, process string, ttl time.Duration) (all []strategies.Standing, err error) {
	if ttl > 0 {
		if _, err = m.Keep(ctx, process, ttl); err != nil {
			return nil, err
		}
	}

	err = m.do(ctx, "stand", func(now time.Time) error {
		for _, w := range m.store.queue {
			if w.Process != process || w.Behind {
				continue
			}

			row := m.store.row(w.Name)
			remaining, more := row.runs(now)
			one := strategies.Standing{Name: w.Name, ID: w.ID, Taken: remaining + more}

			if w.Shared && row.reads(now) {
				one.Taken = 0
			}

			var (
				free  []bool
				ahead []int
			)

			for _, name := range strategies.SlotNames(w.Name, w.Slots) {
				free = append(free, m.store.row(name).unfree(now) == 0)
			}

			line := m.store.line(now, w.Name)
			before := strategies.WaitersAhead(m.store.all(w.Name, line), process, w.ID)

			for _, other := range before {
				ahead = append(ahead, other.Slots)

				if life := line[len(ahead)-1].expires.Sub(now); one.Ahead == 0 || life < one.Life {
					one.Life = life
				}

				one.Ahead++
			}

			if w.Shared && !slices.ContainsFunc(before, func(other strategies.Waiter) bool { return !other.Shared }) {
				one.Ahead = 0
			}

			others := len(line)
			if slices.ContainsFunc(line, func(other memoryWaiter) bool { return other.ID == w.ID }) {
				others--
			}

			one.Alone, one.Line = others == 0, row.waiting
			if w.Slots > 1 {
				one.Free = strategies.SlotsLeft(w.Slots, free, ahead)
			}

			all = append(all, one)
		}

		return nil
	})

	return all, err
}

// Keep gives all that was noted for a process another ttl.
func (m *Memory) Keep(ctx context.Context, process string, ttl time.Duration) (kept int, err error) {
	err = m.do(ctx, "keep", func(now time.Time) error {
		for place, w := range m.store.queue {
			if place.process == process {
				w.expires = now.Add(ttl)
				m.store.queue[place] = w
				kept++
			}
		}

		return nil
	})

	return kept, err
}

// Leave ends what Enqueue noted.
func (m *Memory) Leave(ctx context.Context, process string, ids []string) error {
	return m.do(ctx, "leave", func(time.Time) error {
		for place := range m.store.queue {
			if place.process == process && slices.Contains(ids, place.id) {
				delete(m.store.queue, place)
			}
		}

		return nil
	})
}

// Waiters lists those who wait.
func (m *Memory) Waiters(ctx context.Context, f strategies.WaiterFilter) (waiters []strategies.Waiter, err error) {
	err = m.do(ctx, "waiters", func(now time.Time) error {
		for _, w := range m.store.queue {
			if !now.Before(w.expires) || f.Name != "" && f.Name != w.Name || !strings.HasPrefix(w.Name, f.Prefix) ||
				f.Holding && len(w.Holding) == 0 {
				continue
			}

			w.Waited = now.Sub(w.came)
			if row := m.store.rows[w.Name]; row != nil && now.Before(row.expires) && w.Slots <= 1 {
				w.Owner = row.owner
			}

			waiters = append(waiters, w.Waiter)
		}

		return nil
	})

	slices.SortFunc(waiters, func(a, b strategies.Waiter) int {
		behind := map[bool]int{true: 1}

		return cmp.Or(strings.Compare(a.Name, b.Name), behind[a.Behind]-behind[b.Behind], cmp.Compare(a.Ticket, b.Ticket), strings.Compare(a.ID, b.ID))
	})

	if f.Limit > 0 && len(waiters) > f.Limit {
		waiters = waiters[:f.Limit]
	}

	return waiters, err
}
