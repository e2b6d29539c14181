package grants

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Enqueue puts waiters into the lines for their names. Several wait for no row lock: who has to goes alone, with ErrNotBatched.
func (b Base) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) (taken []bool, errs []error) {
	s := b.store
	taken, errs = make([]bool, len(all)), make([]error, len(all))

	var known map[string]bool

	// Leave would find nothing if it overtook a statement that was given up.
	err := s.Attempt(ctx, func(ctx context.Context, on databases.Conn) (err error) {
		if known, err = s.enqueue(ctx, on, all, ttl); err == nil && len(all) == 1 {
			err = s.enqueued(ctx, on, all[0], known)
		}

		return s.busy(err, "another transaction has the row of the name locked")
	})
	if len(all) > 1 && errors.Is(err, strategies.ErrBusy) {
		err = strategies.ErrNotBatched
	}

	for i, w := range all {
		var found bool
		if taken[i], found = known[w.Name]; err == nil && !found && len(all) > 1 {
			errs[i] = strategies.ErrNotBatched
		} else {
			errs[i] = err
		}
	}

	return taken, errs
}

// enqueue returns, of the names whose rows say now that somebody waits, whether they are taken.
func (s *Store) enqueue(ctx context.Context, on databases.Conn, all []strategies.Waiter, ttl time.Duration) (map[string]bool, error) {
	switch {
	case len(all) == 1 && all[0].Behind:
		return s.enqueueIn(ctx, on, s.sql.Enqueue[:1], all, ttl)
	case len(all) == 1:
		return s.enqueueIn(ctx, on, s.sql.Enqueue, all, ttl)
	case !s.sql.OneByOne:
		return s.enqueueIn(ctx, on, s.sql.EnqueueAll, all, ttl)
	}

	taken := make(map[string]bool, len(all))

	// In a transaction, whose clock is the same for all.
	err := s.InTransaction(ctx, on, []databases.Statement{s.sql.Begin}, func() error {
		for one := range slices.Chunk(all, 1) {
			known, err := s.enqueueIn(ctx, on, s.sql.EnqueueEach, one, ttl)
			if err != nil {
				return err
			}

			maps.Copy(taken, known)
		}

		return nil
	})

	return taken, err
}

// enqueueIn is enqueue in steps, of which the last says it.
func (s *Store) enqueueIn(
	ctx context.Context, on databases.Conn, steps []databases.Statement, all []strategies.Waiter, ttl time.Duration,
) (map[string]bool, error) {
	values := waiterColumns.ofAll(steps[0], all)
	values["ttl"] = ceil(ttl)
	last := len(steps) - 1

	if err := ExecAll(ctx, on, steps[:last], values); err != nil {
		return nil, err
	}

	if !s.sql.WithoutReturning || len(all) > 1 {
		return readByKey[bool](ctx, on, steps[last], values)
	}

	result, err := on.Run(ctx, steps[last], values, nil)

	return map[string]bool{all[0].Name: result.LastInsertID != 0}, err
}

// enqueued does what comes after one was put into the line. The first time it also removes what dead
// processes left: not everybody runs a reaper.
func (s *Store) enqueued(ctx context.Context, on databases.Conn, w strategies.Waiter, taken map[string]bool) error {
	// A slot may have been released before this.
	if w.Slots > 1 && !w.Behind {
		delete(taken, w.Name)

		above, below := strategies.SlotRange(w.Name, w.Slots)
		if _, err := on.Run(ctx, s.sql.EnqueueSlots, databases.Values{"above": above, "below": below}, nil); err != nil {
			return err
		}
	}

	if s.swept.Swap(true) {
		return nil
	}

	return s.sweep(ctx, on)
}

// sweep removes those who did not leave.
func (s *Store) sweep(ctx context.Context, on databases.Conn) error {
	dead := make(map[string][]string)

	_, err := on.Run(ctx, s.sql.Dead, nil, func(row databases.Row) error {
		var process, id string

		err := row(&process, &id)
		dead[process] = append(dead[process], id)

		return err
	})
	if err != nil {
		return err
	}

	for process, ids := range dead {
		if _, err := on.Run(ctx, s.sql.Leave, leaving(s.sql.Leave, process, ids), nil); err != nil && !s.Busy(err) {
			return err
		}
	}

	return nil
}

// Keep gives all waiters of a process another ttl, and returns how many they are.
func (b Base) Keep(ctx context.Context, process string, ttl time.Duration) (int, error) {
	kept, err := result(ctx, b.store.Use, func(on databases.Conn) (databases.Result, error) {
		return on.Run(ctx, b.store.sql.Keep, databases.Values{"process": process, "ttl": ceil(ttl)}, nil)
	})

	return int(kept.RowsAffected), err
}

// Leave ends what Enqueue noted.
func (b Base) Leave(ctx context.Context, process string, ids []string) error {
	return b.store.Use(ctx, func(on databases.Conn) error {
		_, err := on.Run(ctx, b.store.sql.Leave, leaving(b.store.sql.Leave, process, ids), nil)

		return err
	})
}

// leaving is what a Leave binds.
func leaving(leave databases.Statement, process string, ids []string) databases.Values {
	waiters := make([]strategies.Waiter, len(ids))
	for i, id := range ids {
		waiters[i] = strategies.Waiter{ID: id, Process: process}
	}

	return waiterColumns.ofAll(leave, waiters)
}

// standing is how one stands as a statement tells it: also of how many slots.
type standing struct {
	strategies.Standing

	slots int
}

// Stand says how those of a process stand in their lines, and keeps them there if ttl is not zero: in one statement where that can be.
func (b Base) Stand(ctx context.Context, process string, ttl time.Duration) (all []strategies.Standing, err error) {
	s, stand := b.store, b.store.sql.Stand
	values := databases.Values{"process": process}

	if ttl > 0 {
		if s.sql.StandKeeping.SQL == "" {
			if _, err = b.Keep(ctx, process, ttl); err != nil {
				return nil, err
			}
		} else {
			stand, values["ttl"] = s.sql.StandKeeping, ceil(ttl)
		}
	}

	err = s.look(ctx, func(on databases.Conn) error {
		known, err := readAll(ctx, on, stand, values, func(row databases.Row, one *standing) error {
			var life, taken, others int64

			err := row(&one.Name, &one.ID, &one.Ahead, &life, &taken, &one.Line, &others, &one.slots)
			one.Life, one.Taken, one.Alone = micros(max(0, life)), micros(max(0, taken)), others == 0

			return err
		})

		for i := 0; i < len(known) && err == nil; i++ {
			if known[i].slots > 1 {
				err = s.standForSlot(ctx, on, process, &known[i])
			}

			all = append(all, known[i].Standing)
		}

		return err
	})

	return all, err
}

// standForSlot looks, in statements for its name alone, which slots are free for one who waits for any, and who is ahead. The rows
// of the slots are a range, which servers find by the primary key if its ends are parameters.
func (s *Store) standForSlot(ctx context.Context, on databases.Conn, process string, one *standing) error {
	taken, err := s.list(ctx, on, strategies.Filter{Name: one.Name})
	if err != nil {
		return err
	}

	free := slices.Repeat([]bool{true}, one.slots)
	one.Free = one.slots

	for _, status := range taken {
		if _, slot := strategies.SplitSlot(status.Name); slot < one.slots {
			free[slot] = false
			one.Free--
		}
	}

	if one.Free == 0 || one.Ahead == 0 {
		return nil
	}

	line, err := s.waiters(ctx, on, strategies.WaiterFilter{Name: one.Name})
	if err != nil {
		return err
	}

	ahead := strategies.WaitersAhead(line, process, one.ID)
	known := make([]int, len(ahead))

	for i, w := range ahead {
		known[i] = w.Slots
	}

	one.Ahead, one.Free = len(ahead), strategies.SlotsLeft(one.slots, free, known)

	return nil
}

// Waiters lists those who wait, and for whom.
func (b Base) Waiters(ctx context.Context, f strategies.WaiterFilter) ([]strategies.Waiter, error) {
	return result(ctx, b.store.look, func(on databases.Conn) ([]strategies.Waiter, error) { return b.store.waiters(ctx, on, f) })
}

func (s *Store) waiters(ctx context.Context, on databases.Conn, f strategies.WaiterFilter) ([]strategies.Waiter, error) {
	values := databases.Values{
		"name": f.Name, "prefix": f.Prefix, "from": cmp.Or(f.Name, f.Prefix), "holds": f.Holding, "limit": limit(f.Limit),
	}

	return readAll(ctx, on, s.sql.Waiters, values, func(row databases.Row, w *strategies.Waiter) error {
		var (
			waited  int64
			holding string
		)

		err := row(
			&w.Name, &w.Process, &w.ID, &w.Ticket, &waited, &w.Holder.Host, &w.Holder.PID, &w.Holder.Label, &w.Holder.Metadata,
			&holding, &w.Behind, &w.Owner, &w.Slots, &w.Shared,
		)
		w.Waited, w.Holding = micros(max(0, waited)), strings.Fields(holding)

		return err
	})
}
