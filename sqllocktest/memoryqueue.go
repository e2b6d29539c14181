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

// Enqueue notes that w waits.
func (m *Memory) Enqueue(ctx context.Context, w strategies.Waiter, ttl time.Duration) error {
	return m.do(ctx, "enqueue", func(now time.Time) error {
		place := memoryPlace{w.Process, w.ID}

		noted, known := m.store.queue[place]
		if !known {
			w.Ticket = now.Add(-w.Waited).UnixMicro()
			noted = memoryWaiter{Waiter: w, came: now.Add(-w.Waited)}
		}

		noted.expires = now.Add(ttl)
		m.store.queue[place] = noted

		return nil
	})
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
func (m *Memory) Leave(ctx context.Context, w strategies.Waiter) error {
	return m.do(ctx, "leave", func(time.Time) error {
		for place := range m.store.queue {
			if place.process == w.Process && (w.ID == "" || place.id == w.ID) {
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
			if row := m.store.rows[w.Name]; row != nil && now.Before(row.expires) {
				w.Owner = row.owner
			}

			waiters = append(waiters, w.Waiter)
		}

		return nil
	})

	slices.SortFunc(waiters, func(a, b strategies.Waiter) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Ticket, b.Ticket), strings.Compare(a.ID, b.ID))
	})

	if f.Limit > 0 && len(waiters) > f.Limit {
		waiters = waiters[:f.Limit]
	}

	return waiters, err
}
