package grants

import (
	"context"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// State is what the database knows of a name.
type State struct {
	// Owner of the grant; empty if the name is free.
	Owner string
	// Token of the latest grant.
	Token int64
	// Ended says why the latest grant ended, if not by its own release.
	Ended string
	// Left of the lease, negative if it expired; Delay comes on top.
	Left   time.Duration
	Delay  time.Duration
	Holder strategies.Holder
	// Line is not zero if others may wait for the name: strategies.HeldError.
	Line int64

	gone bool   // there is no row
	row  string // the owner of the row that a strategy keeps beside, where that is read
}

// State reads a name's rows. All is zero if there are none.
func (s *Store) State(ctx context.Context, on databases.Session, name string) (State, error) {
	return ReadState(ctx, on, s.sql.State, databases.Values{"name": name})
}

// ReadState reads a name's rows by a statement, which may return more columns before
// those of State.
func ReadState(
	ctx context.Context, on databases.Session, statement databases.Statement, values databases.Values, more ...any,
) (st State, err error) {
	st.gone = true

	_, err = on.Run(ctx, statement, values, func(row databases.Row) error {
		st.gone = false

		return st.scan(row, more...)
	})

	return st, err
}

// scan reads a row of a statement for State, with more columns before its own.
func (st *State) scan(row databases.Row, more ...any) error {
	var left, delay int64

	err := row(append(more, &st.Owner, &st.Token, &st.Ended, &left, &delay,
		&st.Holder.Host, &st.Holder.PID, &st.Holder.Label, &st.Holder.Metadata, &st.Line)...)
	st.Left, st.Delay = micros(left), micros(delay)

	return err
}

// Refused is Held for a request, whose turn it may not be.
func (st State) Refused(r strategies.Request) *strategies.HeldError {
	held := st.Held(r.Name)
	if st.Waits(r) {
		held.Detail, held.Line = "", st.Line
	}

	return held
}

// Waits says whether the name is free, but not the request's turn.
func (st State) Waits(r strategies.Request) bool {
	return st.Line != 0 && !r.First && st.Owner != r.Owner && st.Left+st.Delay <= 0
}

// Held is the error for a name that the state says somebody has.
func (st State) Held(name string) *strategies.HeldError {
	held := &strategies.HeldError{Name: name, Remaining: max(0, st.Left+st.Delay)}

	switch {
	case st.Owner != "" && st.Left > 0:
		held.Holder, held.Token, held.Owner, held.Shared = st.Holder, st.Token, st.Owner, strings.HasPrefix(st.Owner, sharedPrefix)
		if detached(st.Owner) {
			held.Owner, held.Detail = "", "detached, and not adopted" // it is a secret
		}
	case st.Owner != "" && st.Left+st.Delay > 0:
		held.Detail = "the lock delay of a lease that expired"
	case st.Left > 0:
		held.Detail = "the minimum hold of a lock that was released"
	default:
		held.Detail = "it changes hands, or a transaction has its row locked"
	}

	return held
}

// detached says whether the grant of an owner waits to be adopted.
func detached(owner string) bool { return strings.HasPrefix(owner, strategies.DetachedPrefix) }

// What the column ended says.
const (
	forced  = "forced: "
	expired = string(strategies.Expired)
)

// end says why the latest grant ended, if not by its own release.
func (st State) end() (reason strategies.Reason, detail string) {
	if detail, found := strings.CutPrefix(st.Ended, forced); found {
		return strategies.Forced, detail
	}

	return strategies.Reason(st.Ended), ""
}

// free says whether nobody holds the name and nothing keeps it taken. Where a lease has
// expired that nobody has ended, there is a grant to end.
func (st State) free() bool {
	_, taken := st.runs()

	return st.Owner == "" && taken == 0
}

// runs says for how long the name is held, or else taken though nobody holds it.
func (st State) runs() (remaining, taken time.Duration) {
	if st.Owner != "" && st.Left > 0 {
		return st.Left, 0
	}

	return 0, max(0, st.Left+st.Delay)
}
