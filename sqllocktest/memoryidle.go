package sqllocktest

import (
	"context"
	"time"
)

// ReapIdle forgets names that are not in use, but not how large their tokens were.
func (m *Memory) ReapIdle(ctx context.Context, idle time.Duration, limit int) (removed int, more bool, err error) {
	err = m.do(ctx, "idle", func(now time.Time) error {
		for name, row := range m.store.rows {
			if removed == limit {
				more = true

				return nil
			}

			if row.idle(now, idle) && len(m.store.line(now, lineOf(name))) == 0 {
				m.store.remove(name)

				removed++
			}
		}

		return nil
	})

	return removed, more, err
}

// idle says whether nothing is to be known of a row that was acquired for so long.
func (r *memoryRow) idle(now time.Time, idle time.Duration) bool {
	return r.owner == "" && len(r.pins) == 0 && now.Sub(r.acquired) > idle && !now.Before(r.taken) && r.mark == 0 && r.reason == ""
}
