package grants

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// enqueueSeveral is Enqueue in one statement. It waits for no row lock: who has to
// goes alone, with ErrNotBatched.
func (b Base) enqueueSeveral(ctx context.Context, all []strategies.Waiter, ttl time.Duration) (taken []bool, errs []error) {
	taken, errs = make([]bool, len(all)), make([]error, len(all))
	known, err := b.enqueueAll(ctx, all, ttl)

	if b.store.Busy(err) || errors.Is(err, strategies.ErrBusy) {
		err = strategies.ErrNotBatched
	}

	for i, w := range all {
		var found bool

		taken[i], found = known[w.Name]

		switch {
		case err != nil:
			errs[i] = err
		case !found:
			errs[i] = strategies.ErrNotBatched
		}
	}

	return taken, errs
}

// enqueueAll returns, of the names whose rows say now that somebody waits, whether they are
// taken.
func (b Base) enqueueAll(ctx context.Context, all []strategies.Waiter, ttl time.Duration) (taken map[string]bool, err error) {
	s := b.store

	conn, ctx, cancel, err := s.Attempt(ctx)
	if err != nil {
		return nil, err
	}

	defer s.Return(conn, &err)
	defer cancel()

	if s.sql.OneByOne {
		return s.enqueueEach(ctx, conn, all, ttl)
	}

	steps := s.sql.EnqueueAll
	values := waitersValues(steps[0], all)
	values["process"], values["ttl"] = all[0].Process, ceil(ttl)

	for _, step := range steps[:len(steps)-1] {
		if _, err := conn.Exec(ctx, step, values); err != nil {
			return nil, err
		}
	}

	return byOwner[bool](ctx, conn, steps[len(steps)-1], values, len(all))
}

// enqueueEach is enqueueAll in a transaction, whose clock is the same for all.
func (s *Store) enqueueEach(
	ctx context.Context, conn databases.Conn, all []strategies.Waiter, ttl time.Duration,
) (taken map[string]bool, err error) {
	taken = make(map[string]bool, len(all))
	steps := s.sql.EnqueueEach

	_, err = s.inTransaction(ctx, conn, func() (bool, error) {
		for _, w := range all {
			values := waiterValues(w, ttl)
			if err := execAll(ctx, conn, steps[:len(steps)-1], values); err != nil {
				return false, err
			}

			known, err := byOwner[bool](ctx, conn, steps[len(steps)-1], values, 1)
			if err != nil {
				return false, err
			}

			maps.Copy(taken, known)
		}

		return true, nil
	})

	return taken, err
}

// arriving are what there are arrays of, about several waiters.
var arriving = map[string]func(strategies.Waiter) string{
	"ids":       func(w strategies.Waiter) string { return w.ID },
	"names":     func(w strategies.Waiter) string { return w.Name },
	"hosts":     func(w strategies.Waiter) string { return w.Holder.Host },
	"pids":      func(w strategies.Waiter) string { return number(int64(w.Holder.PID)) },
	"labels":    func(w strategies.Waiter) string { return w.Holder.Label },
	"metadatas": func(w strategies.Waiter) string { return w.Holder.Metadata },
	"holdings":  func(w strategies.Waiter) string { return strings.Join(w.Holding, " ") },
	"waiteds":   func(w strategies.Waiter) string { return number(ceil(w.Waited)) },
	"shareds":   func(w strategies.Waiter) string { return strconv.FormatBool(w.Shared) },
}

// waitersValues are what a statement about several waiters binds: an array for each column that
// its Args name, or a JSON array of objects, "waiters".
func waitersValues(statement databases.Statement, all []strategies.Waiter) databases.Values {
	values := databases.Values{}

	for _, arg := range statement.Args {
		if column, ok := arriving[arg]; ok {
			values[arg] = array(all, column)
		} else if arg == "waiters" {
			values[arg] = waitersJSON(all)
		}
	}

	return values
}

// waiterJSON is a waiter in JSON.
type waiterJSON struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Host     string `json:"host"`
	PID      int    `json:"pid"`
	Label    string `json:"label"`
	Metadata string `json:"metadata"`
	Holding  string `json:"holding"`
	Waited   int64  `json:"waited"`
	Shared   bool   `json:"shared"`
}

func waitersJSON(all []strategies.Waiter) string {
	list := make([]waiterJSON, len(all))
	for i, w := range all {
		list[i] = waiterJSON{
			w.ID, w.Name, w.Holder.Host, w.Holder.PID, w.Holder.Label, w.Holder.Metadata, strings.Join(w.Holding, " "), ceil(w.Waited), w.Shared,
		}
	}

	// Strings and numbers always have a form in JSON.
	text, _ := json.Marshal(list)

	return string(text)
}
