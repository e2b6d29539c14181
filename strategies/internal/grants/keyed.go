package grants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// A strategy whose lock is a key of its session can take the key and grant the name in one statement, and give both back in
// one. Such statements bind "key", or "keys" in the order of the requests. What they return begins with the owner.

// Keyed is what a statement says that takes keys and grants names.
type Keyed struct {
	Locked bool  // the session has got the key
	Token  int64 // of the grant; zero if the name was not granted
}

// AcquireKeyed sends a statement that takes the keys and grants the names of requests, and returns what it says of each,
// by owner: of one whose row is not free, or not there, nothing. It says nothing after an error, and any of the keys may be locked.
func (s *Store) AcquireKeyed(
	ctx context.Context, on databases.Session, statement databases.Statement, requests []strategies.Request, keys any,
) (map[string]Keyed, error) {
	answers := make(map[string]Keyed, len(requests))

	err := on.Query(ctx, statement, s.keyed(statement, requests, keys), func(row databases.Row) error {
		var (
			owner   string
			answer  Keyed
			ignored bool
		)

		if err := row(&owner, &answer.Locked, &answer.Token, &ignored); err != nil {
			return err
		}

		answers[owner] = answer

		if answer.Token == 0 {
			return nil
		}

		return sound(answer.Token)
	})
	if err != nil {
		return nil, err
	}

	return answers, nil
}

// keyed are the values of such a statement.
func (s *Store) keyed(statement databases.Statement, requests []strategies.Request, keys any) databases.Values {
	if slices.Contains(statement.Args, "keys") {
		values := s.batchValues(statement, requests)
		values["keys"] = keys

		return values
	}

	values := s.values(requests[0])
	values["key"] = keys

	return values
}

// ReleaseKeyed sends a statement that ends grants and gives their keys back, and returns by owner whether the session had the
// key: of one that was not ended nothing. It says nothing after an error, and any of the keys may be unlocked.
func (s *Store) ReleaseKeyed(
	ctx context.Context, on databases.Session, statement databases.Statement, grants []*Grant, keys any,
) (map[string]bool, error) {
	answers, requests := make(map[string]bool, len(grants)), make([]strategies.Request, len(grants))
	contended, again, durable := make(map[string]bool), make([]bool, len(grants)), false

	for i, g := range grants {
		again[i] = g.released.Swap(true)
		requests[i] = g.request
		durable = durable || g.request.DurableRelease
	}

	values := s.keyed(statement, requests, keys)
	values["durable"] = durable

	err := on.Query(ctx, statement, values, func(row databases.Row) error {
		var (
			owner            string
			waited, unlocked bool
		)

		err := row(&owner, &waited, &unlocked)
		answers[owner], contended[owner] = unlocked, waited

		return err
	})
	if err != nil {
		return nil, err
	}

	for i, g := range grants {
		owner := g.request.Owner
		g.contended.Store(contended[owner])

		// What follows tells a row that is gone from one that an earlier release has ended.
		if _, ended := answers[owner]; !ended {
			g.released.Store(again[i])
		}
	}

	return answers, nil
}

// RenewAllOn is RenewAll on a connection that the caller has. An error came for all.
func (s *Store) RenewAllOn(ctx context.Context, on databases.Conn, grants []strategies.Grant, lease time.Duration) ([]error, error) {
	t := s.together(grants, func(*Grant) bool { return true })
	if len(t.requests) == 0 {
		return t.errs, nil
	}

	err := t.renewOn(ctx, on, lease)
	if s.Busy(err) {
		err = nil
	}

	return t.errs, err
}

// Telling makes of a release one that also tells the first in line.
func (s *Store) Telling(release databases.Statement) databases.Statement {
	if s.sql.Telling == nil {
		return release
	}

	return s.sql.Telling(release)
}

// FromLine makes of an acquisition what is sent for one in line.
func (s *Store) FromLine(acquire databases.Statement) databases.Statement {
	if s.sql.FromLine == nil || acquire.SQL == "" {
		return acquire
	}

	return s.sql.FromLine(acquire)
}

// Create makes the rows of a request's name, if they are not there.
func (s *Store) Create(ctx context.Context, on databases.Session, r strategies.Request) error {
	return s.Briefly(ctx, on, s.sql.Create, s.values(r))
}

// Unreachable says whether an error means that the connection broke.
func (s *Store) Unreachable(err error) bool {
	return err != nil && s.db.Classify(err) == databases.Unreachable && !errors.Is(err, context.DeadlineExceeded)
}

// Array is the text of an array of keys.
func Array(keys []any) string {
	return array(keys, func(key any) string { return fmt.Sprint(key) })
}
