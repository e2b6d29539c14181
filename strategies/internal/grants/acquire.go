package grants

import (
	"context"
	"fmt"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Replaces names grants that an acquisition may replace though their lease
// runs, because the caller has the lock of the session that they were made in.
type Replaces struct {
	// Strategy of those grants; empty for none.
	Strategy string
	// Token that the caller saw under the session's lock: a later grant is not
	// replaced by a statement that was held up on its way. AnyToken where the
	// statement is sent on the session itself.
	Token int64
	// Held is what the server knows the session's lock by, for a strategy's own Acquire, which binds it as "held".
	Held string
}

// AnyToken is no token.
const AnyToken int64 = -1

// Take takes the row of a name for a request's owner, and what a strategy keeps beside it, and returns the token.
type Take func(ctx context.Context, on databases.Session, r strategies.Request, instead Replaces) (int64, error)

// Acquire grants the name to the request's owner, if it is free, and returns
// the token.
func (s *Store) Acquire(ctx context.Context, on databases.Session, r strategies.Request, instead Replaces) (int64, error) {
	values := s.Values(r)
	values["session"], values["seen"], values["held"] = instead.Strategy, instead.Token, instead.Held

	if err := s.promise(ctx, on, r); err != nil {
		return 0, s.AsHeld(ctx, on, r.Name, err)
	}

	acquire := s.sql.Acquire[0]
	if r.Wait != "" {
		acquire = s.sql.Acquire[1]
	}

	for round := 1; ; round++ {
		token, err := s.draw(ctx, on, acquire, values)
		if token != 0 || err != nil {
			return token, s.AsHeld(ctx, on, r.Name, err)
		}

		st, err := s.State(ctx, on, r.Name)

		switch {
		case err != nil:
			return 0, err
		case !st.gone && !s.Unready(st):
			if again, err := s.Refused(ctx, on, st, r); !again || round == MaxRounds {
				return 0, err
			}
		case round == MaxRounds:
			return 0, ComesAndGoes(r.Name)
		default:
			if err := s.Create(ctx, on, r); err != nil {
				return 0, s.AsHeld(ctx, on, r.Name, err)
			}
		}
	}
}

// pass has the grant of r.From go over to the request's owner.
func (s *Store) pass(ctx context.Context, on databases.Session, r strategies.Request) (*Grant, error) {
	from := r.From
	r.Tokens = from.Last - from.Token + 1

	if r.Owner == from.Owner {
		return s.Grant(r, from.Last), nil
	}

	if err := s.promise(ctx, on, r); err != nil {
		return nil, s.AsHeld(ctx, on, r.Name, err)
	}

	values := s.Values(r)
	values["from"], values["token"] = from.Owner, from.Last

	for round := 1; ; round++ {
		token, err := s.draw(ctx, on, s.sql.Pass, values)
		if err == nil && token != 0 {
			return s.Grant(r, token), s.passRow(ctx, on, values)
		}

		if err != nil {
			return nil, s.AsHeld(ctx, on, r.Name, err)
		}

		st, err := s.State(ctx, on, r.Name)
		if err != nil {
			return nil, err
		}

		if theirs := st.Owner == from.Owner || st.Owner == r.Owner; !theirs || st.Token != from.Last || st.Left <= 0 {
			g := s.Grant(r, from.Last)
			if theirs {
				g.owner = st.Owner
			}

			return nil, g.lostOn(ctx, on, st)
		}

		if again, err := s.recovering(ctx, on, r, true); err != nil {
			return nil, err
		} else if !again || round == MaxRounds {
			return nil, &strategies.HeldError{Name: r.Name, Token: from.Token, Detail: "a transaction has its row locked"}
		}
	}
}

// passRow has what a strategy keeps beside the record follow it. A row that somebody has locked is left over, as that of a holder that
// has died: the record decides.
func (s *Store) passRow(ctx context.Context, on databases.Session, values databases.Values) error {
	if len(s.sql.PassRow) == 0 {
		return nil
	}

	if err := s.execBriefly(ctx, on, s.sql.PassRow, values); !s.Busy(err) {
		return err
	}

	return nil
}

// MaxRounds is how often an attempt asks: after the making of the row, once in a name's life, and after what is noted about the server.
const MaxRounds = 3

// ComesAndGoes is the answer to a request whose row was not there again after it had been made.
func ComesAndGoes(name string) error {
	return &strategies.HeldError{Name: name, Detail: "its row comes and goes"}
}

// Unready says whether a row has no token yet: whoever made it has not come so far, or has died.
func (s *Store) Unready(st State) bool { return st.Token == 0 && len(s.sql.Create) > 0 }

// AsHeld turns a refusal by the server into the answer that it is; other errors stay. The
// one writer of all names may be at work on any: there it looks whether this is held.
func (s *Store) AsHeld(ctx context.Context, on databases.Session, name string, refused error) error {
	switch {
	case !s.Busy(refused):
		return refused
	case !s.sql.OneWriter:
		return &strategies.HeldError{Name: name, Detail: refused.Error()}
	}

	if st, err := s.State(ctx, on, name); err == nil && st.Left+st.Delay > 0 {
		return st.Held(name)
	}

	return busyError(busyFile, refused)
}

// draw runs a statement that grants and returns the token, zero if it did not.
func (s *Store) draw(
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values,
) (token int64, err error) {
	var granted bool

	if s.sql.WithoutReturning {
		var result databases.Result

		result, err = on.Run(ctx, statement, values, nil)
		token, granted = result.LastInsertID, result.LastInsertID != 0
	} else {
		_, err = on.Run(ctx, statement, values, func(row databases.Row) error {
			granted = true

			return row(&token)
		})
	}

	if err == nil && granted {
		err = sound(token)
	}

	return token, err
}

// sound reports a token that the statements cannot have drawn. A server that
// answers with one does something else than it says, and a grant of it would be
// refused wherever a larger one was seen.
func sound(token int64) error {
	if token > 0 {
		return nil
	}

	return fmt.Errorf("the server answered token %d: it does not keep the promise that tokens are positive and grow, "+
		"so that this is no grant", token)
}
