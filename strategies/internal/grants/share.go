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

// ownerLength is how much of a phase's name is for the owner who begins it: as long as those of package sqllock are.
const ownerLength = 32

// phaseOf is the phase that an owner begins after a token. The same owner asks again if the answer was lost. If its first phase
// has ended meanwhile, this is another: who was about to join or to end that one must not mean this one.
func (s *Store) phaseOf(owner string, token int64) string {
	if len(owner) > ownerLength {
		sum := sha256.Sum256([]byte(owner))
		owner = hex.EncodeToString(sum[:ownerLength/2])
	}

	return s.phasePrefix() + owner + "-" + strconv.FormatInt(token, 36)
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
	End     databases.Statement `sql:"share.end"`
	Shorten databases.Statement `sql:"share.shorten"`
	// Stale lists readers' rows by name and owner whose lease ended long ago, and Clear deletes one.
	Stale databases.Statement `sql:"share.stale"`
	Clear databases.Statement `sql:"share.clear"`
}

// Begin takes the name's row for the request's owner. Of a phase's it is told what the row was seen to say.
type Begin func(ctx context.Context, r strategies.Request, seen State) (token int64, err error)

// Grants grants the name for a request: to a reader as Share does, or else as acquire does.
func (s *Store) Grants(ctx context.Context, on databases.Session, r strategies.Request, ours bool, acquire Begin) (Record, error) {
	if r.Mode == strategies.Shared {
		g, err := s.Share(ctx, on, r, ours, acquire)
		if err != nil {
			return nil, err
		}

		return g, nil
	}

	token, err := acquire(ctx, r, State{})
	if err != nil {
		return nil, err
	}

	return s.Grant(r, token), nil
}

// shareTries is how often a reader looks how the name's row is, which others change meanwhile.
const shareTries = 5

// Share grants the name to a reader, in the phase that there is, or in one that begins. ours says that the caller has a
// session's lock which shows that no writer has the name whose record is of this strategy.
func (s *Store) Share(ctx context.Context, on databases.Session, r strategies.Request, ours bool, begin Begin) (*Share, error) {
	var refused error

	for range shareTries {
		st, _, err := s.State(ctx, on, r.Name)

		switch {
		case err != nil:
			return nil, s.AsHeld(ctx, on, r.Name, err)
		case s.Unready(st): // otherwise the acquisition makes it
			if err := s.WithLockTimeout(ctx, on, s.sql.Create, s.values(r)); err != nil {
				return nil, s.AsHeld(ctx, on, r.Name, err)
			}

			refused = &strategies.HeldError{Name: r.Name, Detail: "its row comes and goes"}

			continue
		case st.Waits(r), !st.read(s) && st.Left+st.Delay > 0 && !ours:
			return nil, s.Refused(ctx, on, st, r)
		}

		var g *Share
		if st.read(s) {
			g, err = s.join(ctx, on, r, st)
		} else {
			g, err = s.begin(ctx, on, r, st, begin)
		}

		if err == nil || !errors.Is(err, strategies.ErrNotAcquired) || waitedFor(err) {
			return g, err
		}

		refused = err
	}

	return nil, refused
}

// waitedFor says whether the name is kept for those who wait.
func waitedFor(err error) bool {
	held := new(strategies.HeldError)

	return errors.As(err, &held) && held.Line != 0
}

// Refused is the error for a request that was not granted.
func (s *Store) Refused(ctx context.Context, on databases.Session, st State, r strategies.Request) error {
	if err := s.ReadHolder(ctx, on, r.Name, &st); err != nil {
		return err
	}

	return st.Refused(r)
}

// ReadHolder puts into a state that readers have the name one of those: the one whose lease ends last. The row has
// who began the phase, and may have left.
func (s *Store) ReadHolder(ctx context.Context, on databases.Session, name string, st *State) error {
	if st.Left <= 0 || !strings.HasPrefix(st.Owner, sharedPrefix) {
		return nil
	}

	st.Holder = strategies.Holder{} // nobody, if those who are left have died

	return on.Query(ctx, s.sql.Shares.Holder, databases.Values{"name": name, "phase": st.Owner}, func(row databases.Row) error {
		var pid int64

		err := row(&st.Holder.Host, &pid, &st.Holder.Label, &st.Holder.Metadata)
		st.Holder.PID = int(pid)

		return err
	})
}

// read says whether readers of the strategy have the name.
func (st State) read(s *Store) bool {
	return strings.HasPrefix(st.Owner, s.phasePrefix()) && st.Left > 0
}

// begin begins a phase.
func (s *Store) begin(ctx context.Context, on databases.Session, r strategies.Request, st State, begin Begin) (*Share, error) {
	// Not everybody runs a reaper.
	if !s.sharesSwept.Swap(true) {
		if err := s.clearShares(ctx, on); err != nil {
			return nil, s.AsHeld(ctx, on, r.Name, err)
		}
	}

	g := s.reader(r, s.phaseOf(r.Owner, st.Token))

	_, err := on.Exec(ctx, s.sql.Shares.Enter, g.values())
	if err != nil {
		return nil, s.AsHeld(ctx, on, r.Name, err)
	}

	g.record.last, err = begin(ctx, g.record.request, st)

	return g.entered(ctx, on, err)
}

// clearShares removes the rows of readers who died long ago.
func (s *Store) clearShares(ctx context.Context, on databases.Session) error {
	return s.clear(ctx, on, s.sql.Shares.Stale, s.sql.Shares.Clear, "name", "owner")
}

// join joins the phase of a state.
func (s *Store) join(ctx context.Context, on databases.Session, r strategies.Request, st State) (*Share, error) {
	g := s.reader(r, st.Owner)
	g.record.last = st.Token

	// Who is in it asks again, because the answer was lost.
	if st.Line != 0 && !r.First {
		phase, _, err := g.readOn(ctx, on)
		if err != nil {
			return nil, s.AsHeld(ctx, on, r.Name, err)
		}

		if phase != st.Owner {
			if err := s.ReadHolder(ctx, on, r.Name, &st); err != nil {
				return nil, err
			}

			held := st.Held(r.Name)
			held.Line, held.Detail = st.Line, "others are first in line"

			return nil, held
		}

		g.reader.First = true
	}

	_, err := on.Exec(ctx, s.sql.Shares.Enter, g.values())
	if err != nil {
		return nil, s.AsHeld(ctx, on, r.Name, err)
	}

	joined, err := g.joinOn(ctx, on, g.reader)
	if err == nil && !joined {
		err = st.Held(r.Name)
	}

	return g.entered(ctx, on, err)
}

// joinOn counts a join that a request is for, and takes it out of the line. If that fails the caller does so later, as in
// any case.
func (g *Share) joinOn(ctx context.Context, on databases.Session, r strategies.Request) (joined bool, err error) {
	s, values := g.store(), g.values()
	values["first"], values["line"] = r.First, r.Line

	result, err := on.Exec(ctx, s.sql.Shares.Join, values)
	if joined = err == nil && result.RowsAffected > 0; joined && r.Wait != "" {
		_, _ = on.Exec(ctx, s.sql.Leave, leaving(s.sql.Leave, r.Process, []string{r.Wait}))
	}

	return joined, err
}

// entered returns the grant of a reader whose row is there; after an error it leaves.
func (g *Share) entered(ctx context.Context, on databases.Session, err error) (*Share, error) {
	if err == nil {
		return g, nil
	}

	err = g.store().AsHeld(ctx, on, g.reader.Name, err)

	if !g.store().Clean(err) {
		return nil, err
	}

	_, failed := g.leave(ctx, on)
	if failed == nil {
		failed = g.TellOn(ctx, on)
	}

	if failed != nil {
		return nil, Doubt(errors.Join(err, failed))
	}

	return nil, err
}

// Share is the grant of a reader.
type Share struct {
	record *Grant // of the phase
	reader strategies.Request
}

// reader is the grant of a reader in a phase.
func (s *Store) reader(r strategies.Request, phase string) *Share {
	record := r
	record.Owner, record.Tokens, record.MinHold, record.LockDelay = phase, 1, 0, 0

	return &Share{record: s.Grant(record, 0), reader: r}
}

func (g *Share) store() *Store { return g.record.store }

// values are what the statements about a reader bind.
func (g *Share) values() databases.Values {
	values := g.store().values(g.reader)
	values["phase"] = g.record.request.Owner

	return values
}

// Granted is the grant as the core has it: with the token of the phase.
func (g *Share) Granted() strategies.Grant {
	return strategies.Grant{Token: g.record.last, Last: g.record.last, Phase: g.Phase(), State: g}
}

// Record is the grant itself.
func (g *Share) Record() Record { return g }

// Phase is the owner of the name's row for as long as there are readers.
func (g *Share) Phase() string { return g.record.request.Owner }

// Request is what the grant was made for.
func (g *Share) Request() strategies.Request { return g.reader }

// Guard keeps the next writer from the name until the transaction ends.
func (g *Share) Guard(ctx context.Context, tx strategies.Tx, token int64) error {
	return g.record.Guard(ctx, tx, token)
}

// Contended says, after the release, whether somebody was registered as waiting.
func (g *Share) Contended() bool { return g.record.Contended() }

// TellOn tells the first in line, if others wait and the release did not.
func (g *Share) TellOn(ctx context.Context, on databases.Session) error {
	return g.record.TellOn(ctx, on)
}

// SessionGone is that of a Grant.
func (g *Share) SessionGone(ctx context.Context, cause error) error {
	return sessionGone(g.Check(ctx), cause)
}

// use runs f on a connection of the pool.
func (g *Share) use(ctx context.Context, f func(databases.Session) error) (err error) {
	conn, err := g.store().Conn(ctx)
	if err != nil {
		return replaced(err)
	}

	defer g.store().Return(conn, &err)

	return f(conn)
}

// Join lets more readers of the process use the grant, if nobody waits or it is first the turn of r.
func (g *Share) Join(ctx context.Context, r strategies.Request) (joins bool, err error) {
	err = g.use(ctx, func(on databases.Session) (err error) {
		if !r.First {
			st, _, err := g.store().State(ctx, on, g.reader.Name)
			if err == nil && st.Owner != g.Phase() {
				err = g.record.lost(st)
			}

			joins = st.Line == 0

			return err
		}

		joins, err = g.joinOn(ctx, on, r)

		return err
	})

	return joins && err == nil, err
}

// Renew extends the leases of the reader and of the name's row.
func (g *Share) Renew(ctx context.Context, lease time.Duration) error {
	return g.use(ctx, func(on databases.Session) error { return g.RenewOn(ctx, on, lease) })
}

// RenewOn is Renew on a connection that the caller has.
func (g *Share) RenewOn(ctx context.Context, on databases.Session, lease time.Duration) error {
	s, values := g.store(), g.values()
	values["lease"] = s.lease(lease)

	kept, err := s.retryBusy(ctx, on, s.sql.Shares.Keep, values)
	if err == nil && kept.RowsAffected == 0 {
		// It is not there, or MySQL found the new value to be the old one.
		err = g.present(ctx, on, nil)
	}

	if err != nil {
		return err
	}

	prolonged, err := s.retryBusy(ctx, on, s.sql.Shares.Prolong, values)
	if err != nil || prolonged.RowsAffected > 0 {
		return err
	}

	return g.lost(ctx, on)
}

// Check asks whether the leases are there.
func (g *Share) Check(ctx context.Context) error {
	return g.use(ctx, func(on databases.Session) error { return g.CheckOn(ctx, on) })
}

// CheckOn is Check on a connection that the caller has.
func (g *Share) CheckOn(ctx context.Context, on databases.Session) error {
	err := g.record.CheckOn(ctx, on)
	if err != nil {
		return err
	}

	return g.present(ctx, on, func(left time.Duration) bool { return left > 0 })
}

// present reports a reader that is not in its phase, or whose lease is not as it should be.
func (g *Share) present(ctx context.Context, on databases.Session, should func(left time.Duration) bool) error {
	phase, left, err := g.readOn(ctx, on)

	switch {
	case err != nil:
		return err
	case phase == g.Phase() && (should == nil || should(left)):
		return nil
	default:
		return g.lost(ctx, on)
	}
}

// readOn reads the phase of the reader, and how long its lease runs.
func (g *Share) readOn(ctx context.Context, on databases.Session) (phase string, left time.Duration, err error) {
	var n int64

	err = on.Query(ctx, g.store().sql.Shares.Reader, g.values(), func(row databases.Row) error { return row(&phase, &n) })

	return phase, micros(n), err
}

// lost says why the reader is not one any more.
func (g *Share) lost(ctx context.Context, on databases.Session) error {
	st, _, err := g.store().State(ctx, on, g.reader.Name)
	if err != nil {
		return err
	}

	return g.record.lost(st)
}

// Release ends the grant, and the phase if there is no other reader.
func (g *Share) Release(ctx context.Context) (contended bool, err error) {
	err = g.Free(ctx)

	return g.Contended(), err
}

// Free is Release where the name cannot be had yet.
func (g *Share) Free(ctx context.Context) error {
	return g.use(ctx, func(on databases.Session) error { return g.ReleaseOn(ctx, on) })
}

// ReleaseOn is Release on a connection that the caller has.
func (g *Share) ReleaseOn(ctx context.Context, on databases.Session) error {
	again := g.record.released.Swap(true)

	phase, err := ending(ctx, g.store(), on, again, func() (string, error) { return g.leave(ctx, on) })

	switch {
	case g.store().Busy(err):
		return busyError{"another transaction is in the way of the release", err}
	case err != nil:
		return err
	case phase == g.Phase():
		return g.TellOn(ctx, on)
	}

	st, found, err := g.store().State(ctx, on, g.reader.Name)

	switch {
	case err != nil:
		return err
	case found && st.Owner == "" && st.Token == g.record.last && st.Ended == "":
		g.record.contended.Store(true) // released before, with the last of its readers

		return g.TellOn(ctx, on)
	case again && !found:
		return nil // so, too, and the row of the idle name has been removed since
	default:
		return g.record.lost(st)
	}
}

// leave takes the reader out of its phase, and ends that or its lease with the last of its readers. It returns whose the
// name's row was before.
func (g *Share) leave(ctx context.Context, on databases.Session) (before string, err error) {
	// Whoever does not know its phase looks for nothing but what it left.
	if g.Phase() == "" {
		if _, err := on.Exec(ctx, g.store().sql.Shares.Leave, g.values()); err != nil {
			return "", err
		}
	}

	var now phase

	// If others come and go all the time, the last of them ends it.
	for try := range shareTries {
		if now, err = g.phaseOn(ctx, on); err != nil {
			return before, err
		}

		// After the first look: as long as the row is there, nobody else ends the phase.
		if try == 0 && g.Phase() != "" {
			before = now.owner

			if _, err := on.Exec(ctx, g.store().sql.Shares.Leave, g.values()); err != nil {
				return before, err
			}
		}

		if ended, err := g.endOn(ctx, on, now); ended || err != nil {
			return before, err
		}
	}

	return before, nil
}

// phase is what a name's row says of its readers.
type phase struct {
	owner       string
	joins, left int64
}

func (g *Share) phaseOn(ctx context.Context, on databases.Session) (p phase, err error) {
	values := databases.Values{"name": g.reader.Name}
	err = on.Query(ctx, g.store().sql.Shares.Phase, values, func(row databases.Row) error { return row(&p.owner, &p.joins, &p.left) })

	return p, err
}

// endOn ends a phase that has no reader any more, and otherwise shortens the lease of the name's row to the longest of
// theirs. false: a reader came or renewed since then.
func (g *Share) endOn(ctx context.Context, on databases.Session, p phase) (ended bool, err error) {
	s := g.store()
	if !strings.HasPrefix(p.owner, s.phasePrefix()) {
		return true, nil
	}

	values := databases.Values{
		"name": g.reader.Name, "owner": p.owner, "phase": p.owner, "joins": p.joins, "durable": g.reader.DurableRelease, "where": s.Where(),
	}

	var longest int64

	err = on.Query(ctx, s.sql.Shares.Longest, values, func(row databases.Row) error { return row(&longest) })

	switch {
	case err != nil:
		return false, err
	case longest > 0 && longest >= p.left:
		return true, nil
	case longest > 0:
		values["left"] = longest
		shortened, err := on.Exec(ctx, s.sql.Shares.Shorten, values)

		return shortened.RowsAffected > 0, err
	}

	if err := execAll(ctx, on, s.sql.BeforeRelease, values); err != nil {
		return false, err
	}

	return g.record.free(ctx, on, s.sql.Shares.End, s.sql.Shares.End, values)
}

// Owners are those who have what a row says is owner's: the readers, if that is a phase.
func (s *Store) Owners(ctx context.Context, name, owner string) (owners []string, err error) {
	if !strings.HasPrefix(owner, sharedPrefix) {
		return []string{owner}, nil
	}

	conn, err := s.Conn(ctx)
	if err != nil {
		return nil, err
	}

	defer s.Return(conn, &err)

	err = conn.Query(ctx, s.sql.Shares.Readers, databases.Values{"name": name, "phase": owner}, func(row databases.Row) error {
		var owner string

		err := row(&owner)
		owners = append(owners, owner)

		return err
	})

	return owners, err
}

// settleShare ends what attempts of a reader left.
func (s *Store) settleShare(ctx context.Context, on databases.Session, r strategies.Request) error {
	g := s.reader(r, "")

	_, err := g.leave(ctx, on)
	if err == nil {
		err = g.TellOn(ctx, on)
	}

	return err
}
