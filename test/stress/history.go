//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"time"
)

// never is later than everything.
const never = instant(math.MaxInt64)

// grant is an acquisition that a worker knows of.
type grant struct {
	name, owner   string
	token         int64
	process, life int
	shared        bool // it is a reader's
	adopted       bool // it has the token of the grant that was detached
	call, ret     instant
	// until is the latest time for which the lock said that it can be trusted.
	until instant
	// told are the times at which the lock said that it was held.
	told []instant
	// freeing is when the holder began to free it: the release or the COMMIT of one in a transaction was
	// called. Zero: never.
	freeing instant
	// released is when a release returned that said yes. Zero: none did.
	released instant
	// kept is until when the name is kept for whoever adopts it, if it was detached.
	kept instant
}

// guarded is a read-modify-write in the database whose COMMIT was sent.
type guarded struct {
	name, owner   string
	token         int64
	writer        string
	commit        instant
	ret           instant // never, if the worker did not learn the outcome
	acknowledged  bool
	committed     bool // it is in the database
	process, life int
}

// reading is what a reader saw in the database, in a guarded transaction that was committed.
type reading struct {
	name          string
	token, value  int64
	process, life int
}

// refusal is an access to the register outside that was refused though the lock said after it, at the time
// held, that it is held.
type refusal struct {
	name          string
	token         int64
	held          instant
	process, life int
}

// leftover is what the database said that a worker holds after that had closed its locker, and been told that all is
// well.
type leftover struct {
	name          string
	process, life int
}

// together is how long somebody may have had a name who wants another one, too, and who keeps it from
// others while that is held.
type together struct {
	name string
	span
}

// history is what is known of a round.
type history struct {
	Settings

	grants       []*grant
	guards       []*guarded
	readings     []reading
	waits        []*wait
	served       []served
	dead         []dead
	together     []together
	refusals     []refusal
	leftovers    []leftover
	disturbances []disturbance
	stalls       []span                // of the machine
	crowded      []int                 // processes whose pool is too small for what they do
	writes       map[string][]write    // by name, what is in the database
	sum          int64                 // of all accounts
	outside      map[string][]accepted // by name, what the register accepted
	notes        []violation           // what is wrong by itself
	failed       []error               // what failed and is no lock's affair

	// free is how long it took after the end of the last worker until every name had been free.
	free time.Duration

	counts  map[operation]int
	unknown int
	mutex   sync.Mutex
}

func (h *history) note(check, text string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()

	h.notes = append(h.notes, violation{Check: check, Text: text})
}

func (h *history) add(g *grant) {
	h.mutex.Lock()
	defer h.mutex.Unlock()

	h.grants = append(h.grants, g)
}

// read collects the records of the workers, the database and the register.
func (r *round) read(ctx context.Context) (*history, error) {
	h := &history{
		Settings: r.Settings, disturbances: r.disturbances, stalls: r.host.machine.all(), counts: map[operation]int{},
		writes: map[string][]write{}, outside: map[string][]accepted{},
	}

	for number, worker := range r.plan.workers {
		if worker.poolSize == smallPool {
			h.crowded = append(h.crowded, number)
		}
	}

	for _, worker := range r.past {
		s := worker.settings

		records, err := readLogbook(s.Log)
		if errors.Is(err, fs.ErrNotExist) {
			// Killed before it began.
			continue
		}

		if err != nil {
			return nil, err
		}

		h.addRecords(s.Process, s.Life, records)
	}

	for _, name := range r.Names {
		h.outside[name] = r.register.history(name)
	}

	if len(h.failed) > 0 {
		return nil, own(errors.Join(h.failed...))
	}

	var writes []write

	err := r.host.ask(ctx, func(db *sql.DB) (err error) {
		if writes, err = readWrites(ctx, db); err != nil {
			return err
		}

		return db.QueryRowContext(ctx, "SELECT SUM(balance) FROM stress_accounts").Scan(&h.sum)
	})
	if err != nil {
		return nil, err
	}

	committed := make(map[string]bool, len(writes))

	for _, w := range writes {
		h.writes[w.name] = append(h.writes[w.name], w)
		committed[w.writer] = true
	}

	for _, g := range h.guards {
		g.committed = committed[g.writer]
	}

	return h, nil
}

// grantKey tells grants apart: several that are handed on in one process have one owner.
type grantKey struct {
	owner string
	token int64
}

// addRecords turns the records of one worker into what the checks need.
func (h *history) addRecords(process, life int, records []record) {
	calls := make(map[int64]record)
	lines := lineRecords{process: process, life: life, waits: map[string]*wait{}, asked: map[int64]string{}, returned: map[int64]instant{}}
	grants := make(map[grantKey]*grant)
	guards := make(map[int64]*guarded)

	for _, r := range records {
		if r.Failed != "" {
			h.failed = append(h.failed, fmt.Errorf("worker %d.%d: %s", process, life, r.Failed))
		}

		if r.Note != "" {
			h.notes = append(h.notes, violation{Check: checkLeft, Text: r.Note})
		}

		lines.add(r)

		switch r.Phase {
		case phaseCall:
			calls[r.ID] = r
			h.counts[r.Op]++

			if g := grants[grantKey{r.Owner, r.Token}]; g != nil && r.Op == opRelease {
				g.free(r.Time)
			}
		case phaseCommit:
			guards[r.ID] = &guarded{
				name: r.Name, owner: r.Owner, token: r.Token, writer: writer(process, life, r.ID), commit: r.Time, ret: never, process: process, life: life,
			}
			h.guards = append(h.guards, guards[r.ID])

			if g := grants[grantKey{r.Owner, r.Token}]; g != nil && r.Frees {
				g.free(r.Time)
			}
		case phaseReturn:
			call := calls[r.ID]
			delete(calls, r.ID)

			if r.Outcome == outcomeUnknown {
				h.unknown++
			}

			h.addReturn(process, life, call, r, grants, guards)
		case phaseEnter, phaseLeave, phaseGrant:
		}
	}

	h.addLines(lines)

	// Those that never returned, because the worker was killed.
	h.unknown += len(calls)

	for _, call := range calls {
		if call.Together {
			left := h.died(process, life)
			if left != never {
				left += calmAfter
			}

			h.together = append(h.together, together{call.Name, span{call.Time, left}})
		}
	}
}

func (h *history) addReturn(
	process, life int, call, r record, grants map[grantKey]*grant, guards map[int64]*guarded,
) {
	g := grants[grantKey{r.Owner, r.Token}]

	if call.Together {
		left := r.Time
		if r.Outcome != outcomeOK {
			left += calmAfter
		}

		h.together = append(h.together, together{call.Name, span{call.Time, left}})
	}

	switch {
	case r.Op == opAcquire && r.Outcome == outcomeOK:
		g = &grant{
			name: r.Name, owner: r.Owner, token: r.Token, process: process, life: life, shared: r.Shared, adopted: r.Adopted,
			call: call.Time, ret: r.Time, until: r.Until,
		}
		grants[grantKey{r.Owner, r.Token}] = g
		h.grants = append(h.grants, g)
	case r.Op == opTold && g != nil:
		h.counts[opTold]++
		g.told = append(g.told, r.Time)
		g.until = max(g.until, r.Until)
	case r.Op == opRelease && r.Outcome == outcomeOK && g != nil:
		g.released = r.Time
		if r.Detached {
			g.kept = r.Until
		}
	case r.Op == opWrite && guards[r.ID] != nil && r.Outcome == outcomeOK:
		guards[r.ID].ret, guards[r.ID].acknowledged = r.Time, true
	case r.Op == opRead && r.Outcome == outcomeOK:
		h.readings = append(h.readings, reading{r.Name, r.Token, r.Value, process, life})
	case r.Op == opOutside && r.Differs:
		h.notes = append(h.notes, violation{checkOutside, r.Name, fmt.Sprintf(
			"worker %d.%d read two values with token %d, and both were accepted", process, life, r.Token)})
	case r.Op == opLeft:
		h.leftovers = append(h.leftovers, leftover{r.Name, process, life})
	case r.Op == opOutside && r.Outcome == outcomeNo && r.Held:
		h.refusals = append(h.refusals, refusal{name: r.Name, token: r.Token, held: r.Until, process: process, life: life})
	}
}

// empty says if a worker did nothing that could be checked: then the round proves nothing. A server that is
// crashed may keep them all from it, and two connections may keep one from it that has many waiters; and in a
// round of a few leases all may happen that can.
func (h *history) empty(workers []workerPlan) error {
	const enough = 15 // leases

	versions := make(map[bool]bool)
	for _, g := range h.grants {
		versions[h.other(g.process)] = true
	}

	if h.Mixed && len(versions) < 2 {
		// In a short round, on a machine that has much to do.
		return own(errors.New("the workers of one of the versions were granted no lock in the whole round"))
	}

	if h.Length < enough*h.Lease || slices.ContainsFunc(h.disturbances, func(d disturbance) bool { return d.Fault == FaultCrash }) {
		return nil
	}

	granted := make([]bool, h.Processes)
	for _, g := range h.grants {
		granted[g.process] = true
	}

	for i, got := range granted {
		if !got && workers[i].poolSize > smallPool {
			return fmt.Errorf("worker %d was granted no lock in the whole round", i)
		}
	}

	if !slices.ContainsFunc(h.guards, func(g *guarded) bool { return g.acknowledged }) {
		return errors.New("no guarded write was committed in the whole round")
	}

	if !slices.ContainsFunc(h.Names, func(name string) bool { return len(h.outside[name]) > 0 }) {
		return errors.New("the register outside accepted no write in the whole round")
	}

	return nil
}

func (g *grant) free(t instant) {
	if g.freeing == 0 {
		g.freeing = t
	}
}

// excuse returns the time from which on a grant may have ended without its holder's knowing; never if there
// was no such event. An operator's release is one for every strategy. A connection-held lock ends with its
// session, so what can end a session is one, too.
func (h *history) excuse(g *grant) instant {
	from := never

	for _, d := range h.disturbances {
		if h.mayHaveEnded(d, g) {
			from = min(from, max(d.Start, g.call))
		}
	}

	return from
}

// mustKnow returns when the holder must have learned that its grant had ended, given that it had by the time
// at: a lease after the last event that can have ended it.
func (h *history) mustKnow(g *grant, at instant) (by instant) {
	for _, d := range h.disturbances {
		if h.mayHaveEnded(d, g) && d.Start <= at {
			by = max(by, d.End+h.settling()+instant(h.Lease))
		}
	}

	return by
}

// mayHaveEnded says whether the grant may have been ended by the disturbance: it came before the end of that, and
// no renewal was begun after it and confirmed.
func (h *history) mayHaveEnded(d disturbance, g *grant) bool {
	over := d.End + h.settling()
	renewed := g.until - instant(h.Lease-h.Lease/100-10*time.Millisecond)

	return h.ends(d, g) && over >= g.call && renewed <= over
}

// settling is the time in which a fault that is over may still end a session: a kill that is carried out a
// moment later, a connection that is found broken when it is used.
func (s Settings) settling() instant { return instant(s.Lease / 2) }

// ends says whether the disturbance can end the grant without its holder.
func (h *history) ends(d disturbance, g *grant) bool {
	switch {
	case d.Fault == FaultForce:
		// Strategy advisory ends the session, with all locks of the process that holds the name.
		return d.Name == g.name || h.Pair.Strategy == "advisory"
	case !h.Pair.connectionHeld():
		return false
	case d.Fault == FaultPause || d.Fault == FaultFreeze:
		return false
	case d.Fault == FaultClock:
		// A clock that is stepped forward ends the lock early, and then its connection is given back at once.
		return d.Process == g.process && d.Step > 0
	case d.Fault == FaultKill:
		return d.Process == g.process && d.Life == g.life
	default:
		return d.Process == -1 || d.Process == g.process
	}
}

// end is the time until which nobody else may have been granted the name.
func (h *history) end(g *grant) instant {
	end := g.until
	if g.freeing > 0 {
		end = min(end, g.freeing)
	}

	return min(end, h.excuse(g))
}
