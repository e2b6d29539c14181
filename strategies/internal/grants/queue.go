package grants

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Enqueue puts waiters into the lines for their names.
func (b Base) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	if len(all) != 1 {
		return b.enqueueSeveral(ctx, all, ttl)
	}

	taken, err := b.enqueueOne(ctx, all[0], ttl)

	return []bool{taken}, []error{err}
}

// enqueueOne puts w into the line for its name. The first time it also removes what dead
// processes left: not everybody runs a reaper.
func (b Base) enqueueOne(ctx context.Context, w strategies.Waiter, ttl time.Duration) (taken bool, err error) {
	s := b.store

	// Leave would find nothing if it overtook a statement that was given up.
	conn, ctx, cancel, err := s.Attempt(ctx)
	if err != nil {
		return false, err
	}

	defer s.Return(conn, &err)
	defer cancel()

	defer func() {
		if s.Busy(err) {
			err = busyError{"another transaction has the row of the name locked", err}
		}
	}()

	values := waiterValues(w, ttl)

	steps := s.sql.Enqueue
	if w.Behind {
		steps = steps[:1]
	}

	for _, step := range steps[:len(steps)-1] {
		if _, err := conn.Exec(ctx, step, values); err != nil {
			return false, err
		}
	}

	taken, err = s.taken(ctx, conn, steps[len(steps)-1], values)

	// A slot may have been released before this.
	if err == nil && w.Slots > 1 && !w.Behind {
		taken = false
		values["above"], values["below"] = strategies.SlotRange(w.Name, w.Slots)
		_, err = conn.Exec(ctx, s.sql.EnqueueSlots, values)
	}

	if err != nil || s.swept.Swap(true) {
		return taken, err
	}

	return taken, s.sweep(ctx, conn)
}

// waiterValues are what the statements about a waiter bind.
func waiterValues(w strategies.Waiter, ttl time.Duration) databases.Values {
	return databases.Values{
		"process": w.Process, "id": w.ID, "name": w.Name, "ttl": ceil(ttl), "waited": ceil(w.Waited), "holding": strings.Join(w.Holding, " "),
		"host": w.Holder.Host, "pid": int64(w.Holder.PID), "label": w.Holder.Label, "metadata": w.Holder.Metadata, "behind": w.Behind,
		"slots": int64(max(1, w.Slots)), "shared": w.Shared,
	}
}

// taken sends a statement that says whether a name is taken.
func (s *Store) taken(
	ctx context.Context, conn databases.Conn, statement databases.Statement, values databases.Values,
) (taken bool, err error) {
	if s.sql.WithoutReturning {
		result, err := conn.Exec(ctx, statement, values)

		return result.LastInsertID != 0, err
	}

	err = conn.Query(ctx, statement, values, func(row databases.Row) error { return row(&taken) })

	return taken, err
}

// sweep removes those who did not leave.
func (s *Store) sweep(ctx context.Context, conn databases.Conn) error {
	dead := make(map[string][]string)

	err := conn.Query(ctx, s.sql.Dead, nil, func(row databases.Row) error {
		var process, id string

		err := row(&process, &id)
		dead[process] = append(dead[process], id)

		return err
	})
	if err != nil {
		return err
	}

	for process, ids := range dead {
		if _, err := conn.Exec(ctx, s.sql.Leave, leaving(s.sql.Leave, process, ids)); err != nil && !s.Busy(err) {
			return err
		}
	}

	return nil
}

// Keep gives all waiters of a process another ttl, and returns how many they are.
func (b Base) Keep(ctx context.Context, process string, ttl time.Duration) (kept int, err error) {
	result, err := b.exec(ctx, b.store.sql.Keep, databases.Values{"process": process, "ttl": ceil(ttl)})

	return int(result.RowsAffected), err
}

// Leave ends what Enqueue noted.
func (b Base) Leave(ctx context.Context, process string, ids []string) (err error) {
	leave := b.store.sql.Leave
	_, err = b.exec(ctx, leave, leaving(leave, process, ids))

	return err
}

// leaving is what a Leave binds.
func leaving(leave databases.Statement, process string, ids []string) databases.Values {
	waiters := make([]strategies.Waiter, len(ids))
	for i, id := range ids {
		waiters[i].ID = id
	}

	values := waitersValues(leave, waiters)
	values["process"] = process

	return values
}

func (b Base) exec(ctx context.Context, statement databases.Statement, values databases.Values) (result databases.Result, err error) {
	conn, err := b.store.Conn(ctx)
	if err != nil {
		return databases.Result{}, err
	}

	defer b.store.Return(conn, &err)

	return conn.Exec(ctx, statement, values)
}

// Stand says how those of a process stand in their lines.
func (b Base) Stand(ctx context.Context, process string) (all []strategies.Standing, err error) {
	conn, err := b.store.LookConn(ctx)
	if err != nil {
		return nil, err
	}

	defer b.store.Return(conn, &err)

	// Of each in all: how many slots it knows, and whether it waits as a reader.
	var (
		slots []int
		reads []bool
	)

	err = conn.Query(ctx, b.store.sql.Stand, databases.Values{"process": process}, func(row databases.Row) error {
		var (
			one                           strategies.Standing
			ahead, life, taken, others, n int64
			shared, read                  bool
		)

		err := row(&one.Name, &one.ID, &ahead, &life, &taken, &one.Line, &others, &n, &shared, &read)
		one.Ahead, one.Life, one.Taken, one.Alone = int(ahead), micros(max(0, life)), micros(max(0, taken)), others == 0
		if shared && read {
			one.Taken = 0
		}

		all, slots, reads = append(all, one), append(slots, int(n)), append(reads, shared)

		return err
	})

	for i := range all {
		if err != nil || slots[i] == 1 && (!reads[i] || all[i].Ahead == 0) {
			continue
		}

		err = b.look(ctx, conn, process, &all[i], slots[i], reads[i])
	}

	return all, err
}

// look looks more closely how one stands, in statements for its name alone.
func (b Base) look(
	ctx context.Context, conn databases.Conn, process string, one *strategies.Standing, slots int, reads bool,
) error {
	var (
		free []bool
		left int
		err  error
	)

	// The rows of the slots are a range, which servers find by the primary key if its ends are parameters.
	if slots > 1 {
		if free, left, err = b.freeSlots(ctx, conn, one.Name, slots); err != nil {
			return err
		}

		one.Free = left
	}

	if !reads && (left == 0 || one.Ahead == 0) {
		return nil
	}

	line, err := b.waiters(ctx, conn, strategies.WaiterFilter{Name: one.Name})
	if err != nil {
		return err
	}

	ahead := strategies.WaitersAhead(line, process, one.ID)
	one.Ahead = len(ahead)

	if reads && !slices.ContainsFunc(ahead, func(w strategies.Waiter) bool { return !w.Shared }) {
		one.Ahead = 0
	}

	if slots > 1 {
		known := make([]int, len(ahead))
		for i, w := range ahead {
			known[i] = w.Slots
		}

		one.Free = strategies.SlotsLeft(slots, free, known)
	}

	return nil
}

// freeSlots says which slots of a name are free, and how many.
func (b Base) freeSlots(ctx context.Context, conn databases.Conn, name string, slots int) (free []bool, left int, err error) {
	taken, err := readHolders(ctx, conn, b.store.sql.Slots, strategies.Filter{Name: name})
	free, left = slices.Repeat([]bool{true}, slots), slots

	for _, status := range taken {
		if _, slot := strategies.SplitSlot(status.Name); slot < slots {
			free[slot] = false
			left--
		}
	}

	return free, left, err
}

// Waiters lists those who wait, and for whom.
func (b Base) Waiters(ctx context.Context, f strategies.WaiterFilter) (waiters []strategies.Waiter, err error) {
	conn, err := b.store.LookConn(ctx)
	if err != nil {
		return nil, err
	}

	defer b.store.Return(conn, &err)

	return b.waiters(ctx, conn, f)
}

func (b Base) waiters(ctx context.Context, conn databases.Conn, f strategies.WaiterFilter) (waiters []strategies.Waiter, err error) {
	values := databases.Values{
		"name": f.Name, "prefix": f.Prefix, "from": cmp.Or(f.Name, f.Prefix), "holds": f.Holding, "limit": limit(f.Limit),
	}

	err = conn.Query(ctx, b.store.sql.Waiters, values, func(row databases.Row) error {
		var (
			w           strategies.Waiter
			waited, pid int64
			holding     string
			slots       int64
		)

		err := row(
			&w.Name, &w.Process, &w.ID, &w.Ticket, &waited, &w.Holder.Host, &pid, &w.Holder.Label, &w.Holder.Metadata, &holding, &w.Behind, &w.Owner, &slots, &w.Shared,
		)
		w.Waited, w.Holder.PID, w.Holding, w.Slots = micros(max(0, waited)), int(pid), strings.Fields(holding), int(slots)
		waiters = append(waiters, w)

		return err
	})

	return waiters, err
}
