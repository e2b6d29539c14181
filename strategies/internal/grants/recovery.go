package grants

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// A standby that is promoted may lack the latest grants of the primary before, whose holders trust them still. Every grant ends by
// itself. So a server that others have not granted on before grants nothing until the longest grant has ended that there may be: a
// recovery pause. Holders whose rows are there go on.
//
// sqllock_recovery has one row with the server that took the writes last, and the longest grant. Each statement that grants, or
// renews for longer, has the condition that the row's server is the one which executes it, that no pause lasts, and that the row
// allows so long a grant. Where that is not so, what has changed is noted first, by the server's clock.

// Recovery are the statements about that.
type Recovery struct {
	// Cluster returns a name, of whatever says that no server lacks a commit of the one before; empty if there is none. The server
	// refuses it if it does not tell which server it is.
	Cluster databases.Statement `sql:"recovery.cluster"`
	// State reads the row: see recovery. Note writes the server, which may begin a pause, and raises the longest grant.
	State databases.Statement `sql:"recovery.state"`
	Note  databases.Statement `sql:"recovery.note"`
	// Run begins what a crash of the server ends, where grants can commit asynchronously.
	Run databases.Statement `sql:"recovery.run"`
	// Settle waits for a transaction that has the row locked, where that is not granted on.
	Settle databases.Statement `sql:"recovery.settle"`
	// Lower has whoever grants note the longest grant anew, and Forget takes what is noted by when it has passed.
	Lower  databases.Statement `sql:"recovery.lower"`
	Forget databases.Statement `sql:"recovery.forget"`
	// End ends a pause, and Lossless says that there need be none.
	End      databases.Statement `sql:"recovery.end"`
	Lossless databases.Statement `sql:"recovery.lossless"`
}

// recoverable says whether servers of this kind can have a recovery pause.
func (s *Store) recoverable() bool { return s.sql.Recovery.State.SQL != "" }

// promised is how long a grant that the request brings keeps others out. A minimum hold does not count, with which nobody works under
// the lock any more: it may be a day, and all names would wait for as long.
func (s *Store) promised(r strategies.Request) int64 { return s.lease(r.Lease) + ceil(r.LockDelay) }

// asynchronous says whether what is granted need not wait for the disk. A minimum hold is to outlast a crash.
func asynchronous(r strategies.Request) bool { return r.AsynchronousCommit && r.MinHold == 0 }

// promise notes how long grants may last before they are asked for. What this store has noted is not noted again: if it was set back
// the grant is refused, and Refused notes it.
//
// A grant that commits asynchronously says nothing of what was committed before it. What others have noted may be on this server alone:
// who gives up waiting for a synchronous standby has committed. So it is written again.
func (s *Store) promise(ctx context.Context, on databases.Session, requests ...strategies.Request) error {
	longest := slices.MaxFunc(requests, func(a, b strategies.Request) int { return cmp.Compare(s.promised(a), s.promised(b)) })
	us := s.promised(longest)

	if !s.recoverable() || us <= s.noted.Load() {
		return nil
	}

	_, _, err := s.noteServer(ctx, on, longest, longest.AsynchronousCommit)
	if err == nil {
		s.noted.Store(us)
	}

	return err
}

// noteServer notes which server this is, and how long a grant may last that the request brings, if the row does not say so, or anyway:
// whether it did is noted. It returns what the row says then.
func (s *Store) noteServer(
	ctx context.Context, on databases.Session, r strategies.Request, anyway bool,
) (st strategies.Recovery, noted bool, err error) {
	values := s.Values(r)
	values["by"], values["reason"] = r.Holder.String(), "another server has become the primary"

	note := []databases.Statement{s.sql.Recovery.Note}
	if asynchronous(r) && s.clusterName() == "" {
		note = []databases.Statement{s.sql.Recovery.Run, s.sql.Recovery.Note}
	}

	for began := time.Now(); ; {
		row, err := s.readRecovery(ctx, on, values)
		st = row.Recovery

		switch {
		case err != nil:
			return st, noted, err
		case r.AsynchronousCommit && (row.off || noted && !row.allowed && asynchronous(r)):
			return st, noted, s.noAsynchronous(row.off)
		case noted || row.same && row.allowed && !anyway:
			return st, noted, nil
		case !row.same && st.Server == st.Previous && st.Remaining > 0 && row.changes >= byTurns:
			return st, noted, &strategies.UnsupportedError{
				Strategy: s.strategy, Fix: `connect to one of them only, and run "sqllock recovery --end" on that`,
				Where: fmt.Sprintf("on two servers that take writes by turns, %q and %q", st.Noted, st.Server),
			}
		}

		err = s.execBriefly(ctx, on, note, values)
		if noted = err == nil; !noted && (!s.Busy(err) || time.Since(began) > time.Second) {
			return st, noted, s.busy(err, lockedRecovery)
		}
	}
}

// noAsynchronous says why a crash would lose what has to wait for the disk, or not show. off says that synchronous_commit is.
func (s *Store) noAsynchronous(off bool) error {
	where, fix := ", whose table sqllock_run is not unlogged", "ALTER TABLE sqllock_run SET UNLOGGED"

	switch {
	case off:
		where, fix = " in a session whose synchronous_commit is off", "leave it on: what may commit asynchronously does"
	case s.clusterName() != "":
		where, fix = " on a server that shows no timeline", "do without it"
	}

	return &strategies.UnsupportedError{Strategy: s.strategy, Where: "with asynchronous commit" + where, Fix: fix}
}

// byTurns is how often another server becomes the primary before it is said that servers take writes by turns: a switchover that is
// taken back is two changes.
const byTurns = 3

const lockedRecovery = "another transaction has the row of sqllock_recovery locked, which says whether there was a fail-over, and has not ended"

// recoveryRow is what the row says, beside what it allows: all zero if there is none.
type recoveryRow struct {
	strategies.Recovery

	same    bool  // no grant is lost that has not ended
	allowed bool  // so long a grant is noted, and the run if it commits asynchronously
	changes int64 // of the server, in the latest pause
	off     bool  // commits of this session wait for nothing, whatever they are
}

func (s *Store) readRecovery(ctx context.Context, on databases.Session, values databases.Values) (row recoveryRow, err error) {
	var left, longest int64

	_, err = ReadOne(ctx, on, s.sql.Recovery.State, values,
		&row.same, &row.allowed, &left, &row.Noted, &row.Server, &row.Previous, &row.Reason, &row.Lossless, &row.Asynchronous, &row.Crashed,
		&row.changes, &longest, &row.LongestBy, &row.off)
	row.Remaining, row.Longest = micros(max(0, left)), micros(longest)

	return row, err
}

// recovering is the answer to a request that was refused: that nothing is granted, or nil. again says that it may have been refused for
// what the row said, if the name is free, and that it says so no more.
func (s *Store) recovering(ctx context.Context, on databases.Session, r strategies.Request, free bool) (again bool, err error) {
	if !s.recoverable() {
		return false, nil
	}

	st, again, err := s.noteServer(ctx, on, r, false)

	switch {
	case err != nil:
		return false, err
	case st.Remaining > 0:
		return false, &strategies.HeldError{Name: r.Name, Recovering: true, Remaining: st.Remaining, Detail: st.Reason}
	case free && !again && s.sql.Recovery.Settle.SQL != "":
		err = s.execBriefly(ctx, on, []databases.Statement{s.sql.Recovery.Settle}, nil)

		return err == nil, s.busy(err, lockedRecovery)
	default:
		return free && again, nil
	}
}

// findCluster notes whether there is something that says that no server lacks a commit.
func (s *Store) findCluster(ctx context.Context, on databases.Session) error {
	if !s.recoverable() {
		return nil
	}

	var name, value string

	_, err := ReadOne(ctx, on, s.sql.Recovery.Cluster, nil, &name, &value)
	if s.refused(err) {
		name, err = "no timeline", nil
	}

	if err == nil {
		s.cluster.Store(&name)
	}

	return err
}

// clusterName is what findCluster has found; empty before.
func (s *Store) clusterName() string { return *s.cluster.Load() }

// lowerPromise has the longest promise noted anew once a day, and forgets what was longer. A row that is locked is left for the next time.
func (s *Store) lowerPromise(ctx context.Context, on databases.Conn) error {
	if !s.recoverable() {
		return nil
	}

	err := s.execBriefly(ctx, on, []databases.Statement{s.sql.Recovery.Forget, s.sql.Recovery.Lower}, nil)
	if s.Busy(err) {
		return nil
	}

	return err
}

// Recovery says whether the database is in a recovery pause, and what is known for the next one. A replica cannot say it.
func (b Base) Recovery(ctx context.Context) (st strategies.Recovery, err error) {
	s := b.store

	err = s.Use(ctx, func(on databases.Conn) error {
		if err := s.db.Verify(ctx, on); err != nil {
			return err
		}

		row, err := s.readRecovery(ctx, on, s.Values(strategies.Request{}))
		st = row.Recovery

		return err
	})

	return st, err
}

// EndRecovery ends a recovery pause, also one that has not begun yet.
func (b Base) EndRecovery(ctx context.Context, reason string) error {
	return b.setRecovery(ctx, b.store.sql.Recovery.End, reason, false)
}

// SetLossless says whether a server that becomes the primary has all commits.
func (b Base) SetLossless(ctx context.Context, lossless bool, reason string) error {
	return b.setRecovery(ctx, b.store.sql.Recovery.Lossless, reason, lossless)
}

func (b Base) setRecovery(ctx context.Context, statement databases.Statement, reason string, lossless bool) error {
	values := b.store.Values(strategies.Request{})
	values["reason"], values["lossless"] = reason, lossless

	return b.store.Use(ctx, func(on databases.Conn) error {
		_, err := b.store.retryBusy(ctx, on, statement, values)

		return b.store.busy(err, lockedRecovery)
	})
}
