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

// Releases are told on channels: to the first in line on that of its process, or to all who wait for anything. What else
// changes is told to all who watch.
const (
	channelOf       = "sqllock_" // and the process
	releasedChannel = "sqllock_released"
	changedChannel  = "sqllock_changed"
)

// Listen tells a process of its turns, where the database can tell. Where it tells of
// commits only, there is something to look for after each.
func (b Base) Listen(ctx context.Context, process string, ready func(), turn func(name, id string, line int64), look func(name string, released bool)) error {
	s := b.store

	listener, ok := s.db.(databases.Listener)
	if !ok {
		return fmt.Errorf("%w: notifications on %s", strategies.ErrUnsupported, s.sql.Name)
	}

	if s.sql.OneWriter {
		// Who begins to wait asks sooner than a commit is seen, and has to go on asking.
		ready = func() {}
	}

	own := channelOf + process

	err := listener.Listen(ctx, []string{own, releasedChannel, changedChannel}, ready, func(channel, payload string) {
		// Whoever may connect can send anything.
		line, wait, _ := strings.Cut(payload, " ")
		id, name, _ := strings.Cut(wait, " ")

		if n, err := strconv.ParseInt(line, 10, 64); channel == own && err == nil {
			turn(name, id, n)
		} else {
			name, _ = strategies.SplitSlot(payload)
			look(name, channel != changedChannel)
		}
	})
	if errors.Is(err, databases.ErrNoNotifications) {
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	}

	return err
}

// hint sends what makes others look sooner. That it fails is no error, as they look anyway; a connection that it leaves
// in doubt is.
func (s *Store) hint(ctx context.Context, on databases.Session, tell databases.Statement, values databases.Values) error {
	if tell.SQL == "" {
		return nil
	}

	_, err := on.Run(ctx, tell, values, nil)
	if s.Clean(err) {
		return nil
	}

	return unheard(err)
}

// TellOn tells those who are the first in the lines of names that have been released, where a statement can. Its error is that
// of a connection in doubt.
func (s *Store) TellOn(ctx context.Context, on databases.Session, names []string) error {
	if len(names) == 0 {
		return nil
	}

	return s.hint(ctx, on, s.sql.Tell, s.named(s.sql.Tell, names))
}

// named are what a statement binds that is about names.
func (s *Store) named(statement databases.Statement, names []string) databases.Values {
	requests := make([]strategies.Request, len(names))
	for i, name := range names {
		requests[i].Name = name
	}

	return s.batchValues(statement, requests, nil)
}

// quietly sends a release, and instead of it a quiet one if the server refuses its notification: who waits looks anyway.
func (s *Store) quietly(release, quiet databases.Statement, send func(databases.Statement) error) error {
	err := send(release)

	if release.SQL != quiet.SQL && s.refused(err) {
		err = send(quiet)
	}

	return err
}

// Call tells the processes that are the first in the lines of names to look how they
// stand. On SQLite they see commits.
func (b Base) Call(ctx context.Context, names []string) error {
	s := b.store

	if !s.wakes() && s.sql.Tell.SQL == "" {
		return nil
	}

	return s.Use(ctx, func(on databases.Conn) error {
		if s.sql.Tell.SQL != "" {
			return s.TellOn(ctx, on, names)
		}

		processes, err := readTexts(ctx, on, s.sql.First, s.named(s.sql.First, names))
		errs := []error{err}

		for _, process := range processes {
			// None is asleep that polls, and one may be another account's.
			if _, err := on.Run(ctx, Written(s.sql.Call, channelOf+process), nil, nil); err != nil && !s.gone(err) {
				errs = append(errs, err)
			}
		}

		return errors.Join(errs...)
	})
}
