package grants

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// A lock of strategy advisory is a key of its session: it takes the key and grants the name in one statement, and gives both back in
// one. Such statements bind "key", or "each_key", or have them in "calls". What they return begins
// with the owner. Where the dialect has WithoutReturning they return nothing: the numbers of the answer tell what they did, or that a
// look has to, which is sent after a statement about several that was not done for all.

// KeyedCall is what is sent about keys of a session.
type KeyedCall struct {
	On       databases.Session
	Requests []strategies.Request
	Keys     []any // of the requests
}

// Keyed is what a statement says that takes keys and grants names.
type Keyed struct {
	Locked bool  // the session has got the key
	Token  int64 // of the grant; zero if the name was not granted
}

// AcquireKeyed takes the keys and grants the names of requests, and returns what the statement says of each,
// by owner: of one whose row is not free, or not there, nothing. It says nothing after an error, and any of the keys may be locked.
func (s *Store) AcquireKeyed(ctx context.Context, c KeyedCall) (map[string]Keyed, error) {
	if err := s.promise(ctx, c.On, c.Requests...); err != nil {
		return nil, err
	}

	sql, single := &s.sql.Advisory, len(c.Requests) == 1
	acquire := sql.AcquireAll

	switch {
	case single && c.Requests[0].Wait != "":
		acquire = sql.AcquireFromLine
	case single:
		acquire = sql.Acquire
	}

	if !s.sql.WithoutReturning {
		return s.lookKeyed(ctx, c, acquire)
	}

	result, err := c.On.Run(ctx, acquire, s.keyed(c, acquire), nil)

	switch {
	case err != nil, single && result.LastInsertID == 0: // nothing is known of it
		return nil, err
	case !single && result.RowsAffected != rowsOfGrant*int64(len(c.Requests)):
		answers, err := s.lookKeyed(ctx, c, sql.Look)
		// One who has had the name before, on a session that has ended, has it without the key.
		maps.DeleteFunc(answers, func(_ string, answer Keyed) bool { return !answer.Locked })

		return answers, err
	}

	answers := make(map[string]Keyed, len(c.Requests))
	for _, r := range c.Requests {
		answers[r.Owner] = Keyed{Locked: true, Token: result.LastInsertID}
	}

	return answers, sound(result.LastInsertID)
}

// rowsOfGrant are the rows that a grant changes where the dialect has WithoutReturning: the name's, and that of its lease.
const rowsOfGrant = 2

// ErrReplica is the answer of a read-only server, where the keys of sessions exclude nobody.
var ErrReplica = fmt.Errorf("%w: advisory locks of a replica exclude nobody", databases.ErrReadOnly)

// lookKeyed sends a statement that returns what it says of each owner: whether the session has the key, the token if the owner has
// the name, and where the dialect has WithoutReturning whether the server is read-only.
func (s *Store) lookKeyed(ctx context.Context, c KeyedCall, statement databases.Statement) (map[string]Keyed, error) {
	return readMap(ctx, c.On, statement, s.keyed(c, statement), func(row databases.Row, owner *string, answer *Keyed) error {
		var last bool // read-only, or of no account

		err := row(owner, &answer.Locked, &answer.Token, &last)

		switch {
		case err != nil:
			return err
		case s.sql.WithoutReturning && last:
			return ErrReplica
		case answer.Token == 0:
			return nil
		default:
			return sound(answer.Token)
		}
	})
}

// keyed are the values of such a statement. Whoever has the key may replace any grant of the strategy.
func (s *Store) keyed(c KeyedCall, statement databases.Statement) databases.Values {
	values := s.batchValues(statement, c.Requests, c.Keys)
	values["session"], values["seen"] = s.strategy, AnyToken

	return values
}

// Freed is what a statement says that ends grants and gives keys back.
type Freed struct {
	Unlocked  bool // the session had the key
	contended bool
}

// ReleaseKeyed ends grants and gives their keys back, and returns by owner what the statement says: of one that
// was not ended nothing. It says nothing after an error, and any of the keys may be unlocked.
func (s *Store) ReleaseKeyed(ctx context.Context, c KeyedCall, grants []*Grant) (answers map[string]Freed, err error) {
	c.Requests = make([]strategies.Request, len(grants))
	again := make([]bool, len(grants))

	for i, g := range grants {
		g.tried.Store(true)

		again[i], c.Requests[i] = g.released.Swap(true), g.request
	}

	release := s.sql.Advisory.ReleaseAll
	if len(grants) == 1 {
		release = s.sql.Advisory.Release
	}

	if s.sql.WithoutReturning {
		answers, err = s.releaseKeyedWithoutReturning(ctx, c, release)
	} else {
		answers, err = readMap(ctx, c.On, release, s.keyed(c, release), func(row databases.Row, owner *string, freed *Freed) error {
			return row(owner, &freed.contended, &freed.Unlocked)
		})
	}

	if err != nil {
		return nil, err
	}

	for i, g := range grants {
		answer, ended := answers[g.request.Owner]
		g.contended.Store(answer.contended)

		// What follows tells a row that is gone from one that an earlier release has ended.
		if !ended {
			g.released.Store(again[i])
			g.tried.Store(again[i])
		}
	}

	return answers, nil
}

// releaseKeyedWithoutReturning takes what the statement did from the numbers of its answer. That about one grant tells of it by the insert
// id; that about several ends those whose keys it has freed, and tells whether anybody waits. The session had the keys of all, so that
// one whose key and name are both gone was freed by it.
func (s *Store) releaseKeyedWithoutReturning(ctx context.Context, c KeyedCall, release databases.Statement) (map[string]Freed, error) {
	result, err := c.On.Run(ctx, release, s.keyed(c, release), nil)
	if err != nil {
		return nil, err
	}

	answers := make(map[string]Freed, len(c.Requests))

	if len(c.Requests) == 1 {
		if told := result.LastInsertID - 1; told >= 0 {
			answers[c.Requests[0].Owner] = Freed{contended: told&1 != 0, Unlocked: told&2 != 0}
		}

		return answers, nil
	}

	var left map[string]Keyed

	if result.RowsAffected != int64(len(c.Requests)) {
		if left, err = s.lookKeyed(ctx, c, s.sql.Advisory.Look); err != nil {
			return nil, err
		}
	}

	for _, r := range c.Requests {
		if left[r.Owner] == (Keyed{}) {
			answers[r.Owner] = Freed{contended: result.LastInsertID != 0, Unlocked: true}
		}
	}

	return answers, nil
}

// Unreachable says whether an error means that the connection broke.
func (s *Store) Unreachable(err error) bool {
	return err != nil && s.db.Classify(err) == databases.Unreachable && !errors.Is(err, context.DeadlineExceeded)
}
