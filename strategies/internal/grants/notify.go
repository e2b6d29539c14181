package grants

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Listen tells a process of its turns, where the database can tell. Where it tells of
// commits only, there is something to look for after each.
func (q Queue) Listen(ctx context.Context, process string, ready func(), turn func(name, id string, line int64), look func()) error {
	s := q.store

	listener, ok := s.db.(databases.Listener)
	if !ok {
		return fmt.Errorf("%w: notifications on %s", strategies.ErrUnsupported, s.sql.Name)
	}

	if s.sql.OneWriter {
		// Who begins to wait asks sooner than a commit is seen, and has to go on asking.
		ready = func() {}
	}

	own := channelOf + process

	err := listener.Listen(ctx, []string{own, allChannel}, ready, func(channel, payload string) {
		// Whoever may connect can send anything.
		line, wait, _ := strings.Cut(payload, " ")
		id, name, _ := strings.Cut(wait, " ")

		if n, err := strconv.ParseInt(line, 10, 64); channel == own && err == nil {
			turn(name, id, n)
		} else {
			look()
		}
	})
	if errors.Is(err, databases.ErrNoNotifications) {
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	}

	return err
}

// Call tells the processes that are the first in the lines of names to look how they
// stand. On SQLite they see commits.
func (q Queue) Call(ctx context.Context, names []string) (err error) {
	s := q.store

	if !s.wakes() && s.sql.Tell.SQL == "" {
		return nil
	}

	requests := make([]strategies.Request, len(names))
	for i, name := range names {
		requests[i].Name = name
	}

	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}

	defer s.Return(conn, &err)

	if s.sql.Tell.SQL != "" {
		return conn.Query(ctx, s.sql.Tell, s.batchValues(s.sql.Tell, requests), func(databases.Row) error { return nil })
	}

	var processes []string

	err = conn.Query(ctx, s.sql.First, s.batchValues(s.sql.First, requests), func(row databases.Row) error {
		var process string

		err := row(&process)
		processes = append(processes, process)

		return err
	})
	if err != nil {
		return err
	}

	var errs []error

	for _, process := range processes {
		// None is asleep that polls, and one may be another account's.
		if _, err := conn.Exec(ctx, s.sql.Call(process), nil); err != nil && !s.gone(err) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}
