package grants

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Readers have a name's row together for a phase. The row's owner is the phase's then, so that nobody
// else is granted the name, and no statement about other grants needs to know of readers. Each reader has a row in
// sqllock_shares with a lease of its own, and the lease of the name's row is at least as long as those.
//
// The order of the statements has one reason: whoever leaves must not end a phase that another has just joined. A
// statement that looks for readers and frees the row would do so, because it sees the row as it is and the readers as they
// were when it began. Therefore whoever comes or renews writes its own row first, and then changes the number of
// joins in the name's row. Whoever leaves reads that number first, and then the readers; and it frees the
// row only if the number has not changed.

// sharedPrefix is how the owner of a phase begins, and no other owner.
const sharedPrefix = "shared-"

// phasePrefix is that of this strategy, whose readers cannot join a phase of another one.
func (s *Store) phasePrefix() string { return sharedPrefix + s.strategy + "-" }

// phaseOf is the phase that an owner begins after a token. The same owner asks again if the answer was lost. If its first phase
// has ended meanwhile, this is another: who was about to join or to end that one must not mean this one.
func (s *Store) phaseOf(owner string, token int64) string {
	sum := sha256.Sum256([]byte(owner + " " + strconv.FormatInt(token, 10)))

	return s.phasePrefix() + hex.EncodeToString(sum[:16])
}

// Shares are the statements about readers.
type Shares struct {
	// Enter makes a reader's row, Keep gives it another lease, and Leave deletes it.
	Enter databases.Statement `sql:"share.enter"`
	Keep  databases.Statement `sql:"share.keep"`
	Leave databases.Statement `sql:"share.leave"`
	// Join gives the phase's row a lease, unless it is over or others come first; Prolong unless it is over.
	Join    databases.Statement `sql:"share.join"`
	Prolong databases.Statement `sql:"share.prolong"`
	// Phase reads the owner of the name's row, the number of joins, and how long its lease runs; Longest how long the
	// leases of a phase's readers run; and Reader the phase of one, and how long its lease runs.
	Phase   databases.Statement `sql:"share.phase"`
	Longest databases.Statement `sql:"share.longest"`
	Reader  databases.Statement `sql:"share.reader"`
	// Readers lists the owners in a phase, and Holder is the one of them whose lease ends last.
	Readers databases.Statement `sql:"share.readers"`
	Holder  databases.Statement `sql:"share.holder"`
	// End frees the row, and Shorten shortens its lease, if nobody has joined since. Whoever else left may have made it
	// shorter still.
	End     databases.Statement `sql:"share.end" insert:"share.end insert"`
	Shorten databases.Statement `sql:"share.shorten"`
	// Stale lists readers' rows by name and owner whose lease ended long ago, and Clear deletes one.
	Stale databases.Statement `sql:"share.stale"`
	Clear databases.Statement `sql:"share.clear"`
}

// Grants grants the name for a request: to a reader as share does, or else by the row.
func (s *Store) Grants(ctx context.Context, on databases.Session, r strategies.Request, instead Replaces) (*Grant, error) {
	if r.Mode == strategies.Shared {
		return s.share(ctx, on, r, instead)
	}

	token, err := s.take(ctx, on, r, instead)
	if err != nil {
		return nil, s.AsHeld(ctx, on, r.Name, err)
	}

	return s.Grant(r, token), nil
}

// shareTries is how often a reader looks how the name's row is, which others change meanwhile.
const shareTries = 5

// share grants the name to a reader, in the phase that there is, or in one that begins. Who may replace grants has a
// session's lock which shows that no writer has the name whose record is of this strategy.
func (s *Store) share(ctx context.Context, on databases.Session, r strategies.Request, instead Replaces) (*Grant, error) {
	if err := s.promise(ctx, on, r); err != nil {
		return nil, s.AsHeld(ctx, on, r.Name, err)
	}

	for try := 1; ; try++ {
		g, goesOn, err := s.shareAsIs(ctx, on, r, instead)
		if err = s.AsHeld(ctx, on, r.Name, err); !goesOn || try == shareTries || !errors.Is(err, strategies.ErrNotAcquired) {
			return g, err
		}
	}
}

// shareAsIs is one try, and says whether there is use in another one if the name was not granted.
func (s *Store) shareAsIs(
	ctx context.Context, on databases.Session, r strategies.Request, instead Replaces,
) (g *Grant, goesOn bool, err error) {
	st, err := s.State(ctx, on, r.Name)
	read := strings.HasPrefix(st.Owner, s.phasePrefix()) && st.Left > 0

	switch {
	case err != nil:
		return nil, false, err
	case s.Unready(st): // otherwise the acquisition makes it
		if err := s.Create(ctx, on, r); err != nil {
			return nil, false, err
		}

		return nil, true, ComesAndGoes(r.Name)
	case st.Waits(r), !read && st.Left+st.Delay > 0 && instead.Strategy == "":
		_, err = s.Refused(ctx, on, st, r)

		return nil, false, err
	case read:
		g, err = s.join(ctx, on, r, st)
	default:
		g, err = s.begin(ctx, on, r, st, instead)
	}

	// Not if the name is kept for those who wait.
	held := new(strategies.HeldError)

	return g, !errors.As(err, &held) || held.Line == 0, err
}

// Refused is the error for a request that was not granted. again says that what was in the way may be over.
func (s *Store) Refused(ctx context.Context, on databases.Session, st State, r strategies.Request) (again bool, err error) {
	return s.refusedAfter(ctx, on, st, r, new(allowance))
}

// allowance is how long a grant the server allows, as it has just said.
type allowance struct {
	us           int64
	asynchronous bool
}

func (s *Store) refusedAfter(ctx context.Context, on databases.Session, st State, r strategies.Request, seen *allowance) (again bool, err error) {
	if err := s.ReadHolder(ctx, on, r.Name, &st); err != nil {
		return false, err
	}

	// Others wait, somebody else's attempt has the row locked, or nothing is granted. A lease is in nobody's way who has the lock of the
	// session.
	if free := st.Left+st.Delay <= 0 || st.Owner == r.Owner; free || s.ofSessions() {
		next := free && !st.Waits(r)

		if s.promised(r) <= seen.us && (seen.asynchronous || !asynchronous(r)) && (!next || s.sql.Recovery.Settle.SQL == "") {
			return false, st.Refused(r)
		}

		if again, err = s.recovering(ctx, on, r, next); err != nil {
			return false, err
		}

		if !again {
			*seen = allowance{s.promised(r), asynchronous(r)}
		}
	}

	return again, st.Refused(r)
}

// ReadHolder puts into a state that readers have the name one of those: the one whose lease ends last. The row has
// who began the phase, and may have left.
func (s *Store) ReadHolder(ctx context.Context, on databases.Session, name string, st *State) error {
	if st.Left <= 0 || !strings.HasPrefix(st.Owner, sharedPrefix) {
		return nil
	}

	h := &st.Holder
	*h = strategies.Holder{} // nobody, if those who are left have died

	_, err := ReadOne(ctx, on, s.sql.Shares.Holder, databases.Values{"name": name, "phase": st.Owner}, &h.Host, &h.PID, &h.Label, &h.Metadata)

	return err
}

// SessionHolds is the detail about a name that a session has locked, and whose row says that it is free.
const SessionHolds = "a session holds it, and has not written down whose"

// HeldBySession is the error for a name that another session has locked. The state is what its row says.
func (s *Store) HeldBySession(ctx context.Context, on databases.Session, name string, st State) error {
	if err := s.ReadHolder(ctx, on, name, &st); err != nil {
		return err
	}

	held := st.Held(name)
	if st.Left <= 0 {
		held.Detail = SessionHolds
	}

	return held
}

// reader is the grant of a reader in a phase. It has the token of the phase.
func (s *Store) reader(r strategies.Request, phase string, token int64) *Grant {
	r.Tokens, r.MinHold, r.LockDelay = 1, 0, 0
	g := s.Grant(r, token)
	g.owner = phase

	return g
}

// begin begins a phase. What the row was seen to say may be replaced, too.
func (s *Store) begin(ctx context.Context, on databases.Session, r strategies.Request, st State, instead Replaces) (*Grant, error) {
	// Not everybody runs a reaper.
	if !s.sharesSwept.Swap(true) {
		if _, err := s.clear(ctx, on, s.sql.Shares.Stale, s.sql.Shares.Clear); err != nil {
			return nil, err
		}
	}

	g := s.reader(r, s.phaseOf(r.Owner, st.Token), 0)

	return g.enter(ctx, on, func() (err error) {
		row := g.request
		row.Owner = g.owner

		if instead.Strategy != "" {
			instead.Token = max(instead.Token, st.Token)
		}

		g.last, err = s.take(ctx, on, row, instead)

		return err
	})
}

// join joins the phase of a state.
func (s *Store) join(ctx context.Context, on databases.Session, r strategies.Request, st State) (*Grant, error) {
	g := s.reader(r, st.Owner, st.Token)

	// Who is in it asks again, because the answer was lost.
	if st.Line != 0 && !r.First {
		phase, _, err := g.readPhase(ctx, on)
		if err != nil {
			return nil, err
		}

		if phase != st.Owner {
			if err := s.ReadHolder(ctx, on, r.Name, &st); err != nil {
				return nil, err
			}

			held := st.Held(r.Name)
			held.Line, held.Detail = st.Line, "others are first in line"

			return nil, held
		}

		g.request.First = true
	}

	return g.enter(ctx, on, func() error {
		joined, err := g.join(ctx, on, g.request)
		if err == nil && !joined {
			err = st.Held(r.Name)
		}

		return err
	})
}

// join counts a join that a request is for, and takes it out of the line. If that fails the caller does so later, as in
// any case.
func (g *Grant) join(ctx context.Context, on databases.Session, r strategies.Request) (joined bool, err error) {
	s, values := g.store, g.values()
	values["first"], values["line"] = r.First, r.Line

	result, err := on.Run(ctx, s.sql.Shares.Join, values, nil)
	if joined = err == nil && result.RowsAffected > 0; joined && r.Wait != "" {
		_, _ = on.Run(ctx, s.sql.Leave, leaving(s.sql.Leave, r.Process, []string{r.Wait}), nil)
	}

	return joined, err
}

// enter makes the reader's row, and then has the name's row be in its phase. If that fails the reader leaves.
func (g *Grant) enter(ctx context.Context, on databases.Session, phase func() error) (*Grant, error) {
	s := g.store

	_, err := on.Run(ctx, s.sql.Shares.Enter, g.values(), nil)
	if err != nil {
		return nil, err
	}

	if err = s.AsHeld(ctx, on, g.request.Name, phase()); err == nil {
		return g, nil
	}

	if s.Clean(err) {
		if failed := g.leaveAndTell(ctx, on); failed != nil {
			err = Doubt(errors.Join(err, failed))
		}
	}

	return nil, err
}

// Join says whether more readers of the process may have a reader's grant, too: if nobody waits, or it is first the turn of r.
func (Base) Join(ctx context.Context, granted strategies.Grant, r strategies.Request) (joins bool, err error) {
	g := recordOf(granted)

	return result(ctx, g.use, func(on databases.Conn) (bool, error) {
		if r.First {
			return g.join(ctx, on, r)
		}

		st, err := g.state(ctx, on)
		if err == nil && st.Owner != g.owner {
			err = g.lostOn(ctx, on, st)
		}

		return err == nil && st.Line == 0, err
	})
}

// readPhase reads the phase of the reader, and how long its lease runs.
func (g *Grant) readPhase(ctx context.Context, on databases.Session) (phase string, left time.Duration, err error) {
	var n int64

	_, err = ReadOne(ctx, on, g.store.sql.Shares.Reader, g.values(), &phase, &n)

	return phase, micros(n), err
}

// leave takes the reader out of its phase, and ends that or its lease with the last of its readers. It says whether the
// name's row was the phase's before.
func (g *Grant) leave(ctx context.Context, on databases.Session) (was bool, err error) {
	now, err := g.phase(ctx, on)
	if err != nil {
		return false, err
	}

	// After the first look: as long as the row is there, nobody else ends the phase.
	if _, err := on.Run(ctx, g.store.sql.Shares.Leave, g.values(), nil); err != nil {
		return false, err
	}

	was = now.owner == g.owner

	// If others come and go all the time, the last of them ends it.
	for try := 1; ; try++ {
		ended, err := g.endPhase(ctx, on, now)
		if ended || err != nil || try == shareTries {
			return was, err
		}

		if now, err = g.phase(ctx, on); err != nil {
			return was, err
		}
	}
}

// leaveAndTell ends what attempts of the reader left.
func (g *Grant) leaveAndTell(ctx context.Context, on databases.Session) error {
	if _, err := g.leave(ctx, on); err != nil {
		return err
	}

	return g.TellOn(ctx, on)
}

// phase is what a name's row says of its readers.
type phase struct {
	owner       string
	joins, left int64
}

func (g *Grant) phase(ctx context.Context, on databases.Session) (p phase, err error) {
	_, err = ReadOne(ctx, on, g.store.sql.Shares.Phase, databases.Values{"name": g.request.Name}, &p.owner, &p.joins, &p.left)

	return p, err
}

// endPhase ends a phase that has no reader any more, and otherwise shortens the lease of the name's row to the longest of
// theirs. false: a reader came or renewed since then.
func (g *Grant) endPhase(ctx context.Context, on databases.Session, p phase) (ended bool, err error) {
	s := g.store
	if !strings.HasPrefix(p.owner, s.phasePrefix()) {
		return true, nil
	}

	values := g.values()
	values["owner"], values["phase"], values["joins"] = p.owner, p.owner, p.joins

	var longest int64

	if _, err := ReadOne(ctx, on, s.sql.Shares.Longest, values, &longest); err != nil {
		return false, err
	}

	switch {
	case longest >= max(1, p.left):
		return true, nil
	case longest > 0:
		values["left"] = longest
		shortened, err := on.Run(ctx, s.sql.Shares.Shorten, values, nil)

		return shortened.RowsAffected > 0, err
	}

	if err := ExecAll(ctx, on, s.sql.BeforeRelease, values); err != nil {
		return false, err
	}

	return g.free(ctx, on, s.sql.Shares.End, s.sql.Shares.End, values)
}

// Owners are those who have what a row says is owner's: the readers, if that is a phase.
func (s *Store) Owners(ctx context.Context, name, owner string) ([]string, error) {
	if !strings.HasPrefix(owner, sharedPrefix) {
		return []string{owner}, nil
	}

	return result(ctx, s.Use, func(on databases.Conn) ([]string, error) {
		return readTexts(ctx, on, s.sql.Shares.Readers, databases.Values{"name": name, "phase": owner})
	})
}
