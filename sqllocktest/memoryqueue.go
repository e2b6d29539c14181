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

// Enqueue puts w into line.
func (m *Memory) Enqueue(ctx context.Context, w strategies.Waiter, ttl time.Duration) (taken bool, err error) {
	err = m.do(ctx, "enqueue", func(now time.Time) error {
		place := memoryPlace{w.Process, w.ID}

		noted, known := m.store.queue[place]
		if !known || noted.Behind {
			m.store.ticket = max(m.store.ticket+1, now.Add(-w.Waited).UnixMicro())
			w.Ticket = m.store.ticket
			noted = memoryWaiter{Waiter: w, came: now.Add(-w.Waited)}
		}

		noted.Behind, noted.expires = w.Behind, now.Add(ttl)
		m.store.queue[place] = noted

		for _, name := range strategies.SlotNames(w.Name, w.Slots) {
			if !w.Behind {
				row := m.store.row(name)
				row.waiting = max(row.waiting+1, now.UnixMicro())
				taken = row.unfree(now) > 0
			}
		}

		return nil
	})

	return taken && w.Slots <= 1, err
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

// Stand says how those of a process stand.
func (m *Memory) Stand(ctx context.Context, process string) (all []strategies.Standing, err error) {
	err = m.do(ctx, "stand", func(now time.Time) error {
		for _, w := range m.store.queue {
			if w.Process != process || w.Behind {
				continue
			}

			row := m.store.row(w.Name)
			remaining, more := row.runs(now)
			one := strategies.Standing{Name: w.Name, ID: w.ID, Taken: remaining + more}

			for _, name := range strategies.SlotNames(w.Name, w.Slots) {
				if w.Slots > 1 && m.store.row(name).unfree(now) == 0 {
					one.Free++
				}
			}

			others := 0

			for _, other := range m.store.line(now, w.Name) {
				if other.ID == w.ID {
					continue
				}

				others++

				if other.Ticket < w.Ticket || other.Ticket == w.Ticket && other.ID < w.ID {
					if life := other.expires.Sub(now); one.Ahead == 0 || life < one.Life {
						one.Life = life
					}

					one.Ahead++
				}
			}

			one.Alone, one.Line = others == 0, row.waiting

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
