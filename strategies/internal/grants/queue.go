package grants

import (
	"context"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Queue is what a strategy embeds to be a strategies.Queuer and a strategies.Notifier.
type Queue struct{ store *Store }

var (
	_ strategies.Queuer   = Queue{}
	_ strategies.Notifier = Queue{}
)

// Queue returns what the store keeps of those who wait.
func (s *Store) Queue() Queue { return Queue{s} }

// Enqueue notes that w waits. The first time it also removes what dead processes left:
// not everybody runs a reaper.
func (q Queue) Enqueue(ctx context.Context, w strategies.Waiter, ttl time.Duration) (err error) {
	s := q.store

	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}

	defer s.Return(conn, &err)

	if _, err := conn.Exec(ctx, s.sql.Enqueue, databases.Values{
		"process": w.Process, "id": w.ID, "name": w.Name, "ttl": ceil(ttl), "waited": ceil(w.Waited), "holding": strings.Join(w.Holding, " "),
		"host": w.Holder.Host, "pid": int64(w.Holder.PID), "label": w.Holder.Label, "metadata": w.Holder.Metadata,
	}); err != nil {
		return err
	}

	if s.swept.Swap(true) {
		return nil
	}

	return s.sweep(ctx, conn)
}

// sweep removes those who did not leave.
func (s *Store) sweep(ctx context.Context, conn databases.Conn) error {
	return s.clear(ctx, conn, s.sql.Dead, s.sql.Leave, "process", "id")
}

// Keep gives all waiters of a process another ttl, and returns how many they are.
func (q Queue) Keep(ctx context.Context, process string, ttl time.Duration) (kept int, err error) {
	s := q.store

	conn, err := s.Conn(ctx)
	if err != nil {
		return 0, err
	}

	defer s.Return(conn, &err)

	result, err := conn.Exec(ctx, s.sql.Keep, databases.Values{"process": process, "ttl": ceil(ttl)})

	return int(result.RowsAffected), err
}

// Leave ends what Enqueue noted, of one wait or of a whole process.
func (q Queue) Leave(ctx context.Context, w strategies.Waiter) (err error) {
	s := q.store

	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}

	defer s.Return(conn, &err)

	leave := s.sql.Leave
	if w.ID == "" {
		leave = s.sql.LeaveAll
	}

	_, err = conn.Exec(ctx, leave, databases.Values{"process": w.Process, "id": w.ID})

	return err
}

// Waiters lists those who wait, and for whom.
func (q Queue) Waiters(ctx context.Context, f strategies.WaiterFilter) (waiters []strategies.Waiter, err error) {
	s := q.store

	conn, err := s.LookConn(ctx)
	if err != nil {
		return nil, err
	}

	defer s.Return(conn, &err)

	values := databases.Values{"name": f.Name, "prefix": f.Prefix, "holds": f.Holding, "limit": limit(f.Limit)}

	err = conn.Query(ctx, s.sql.Waiters, values, func(row databases.Row) error {
		var (
			w           strategies.Waiter
			waited, pid int64
			holding     string
		)

		err := row(&w.Name, &w.Process, &w.ID, &w.Ticket, &waited, &w.Holder.Host, &pid, &w.Holder.Label, &w.Holder.Metadata, &holding, &w.Owner)
		w.Waited, w.Holder.PID, w.Holding = micros(max(0, waited)), int(pid), strings.Fields(holding)
		waiters = append(waiters, w)

		return err
	})

	return waiters, err
}
