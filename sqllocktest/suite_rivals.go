package sqllocktest

import (
	"os"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// rivalCases are about other strategies that are used for the same name. What is
// tested of one as the holder is tested of the others by their own suites.
func rivalCases() []testCase {
	return []testCase{
		{"rivals/do not get a name that is held", rivalsOnly, rivalHeld},
		{"rivals/take over what expired, and the holder is told", rivalsOnly, rivalTakesOver},
		{"rivals/wait for a minimum hold", both(rivalsOnly, minHoldOnly), rivalMinHold},
		{"rivals/wait for a lock delay", both(rivalsOnly, lockDelayOnly), rivalLockDelay},
		{"rivals/end each other's locks", rivalsOnly, rivalForces},
		{"rivals/hammer", rivalsOnly, rivalHammer},
	}
}

func rivalsOnly(e *env) string {
	if !e.harness.Rivals {
		return "there are no other strategies"
	}

	return ""
}

// rival is a locker of another strategy, and the name that it is tried with.
type rival struct {
	*sqllock.Locker

	name string
}

// rivals are lockers of the other strategies.
func (e *env) rivals() []rival {
	e.Helper()

	if e.Rivals == nil {
		e.Fatal("Harness.Rivals is set, and Fixture.Rivals is nil")
	}

	var rivals []rival

	for _, s := range e.Rivals(e.T) {
		rivals = append(rivals, rival{e.locker(s), e.name + "/" + s.Features().Strategy})
	}

	return rivals
}

func rivalHeld(e *env) {
	for _, r := range e.rivals() {
		first := e.acquireName(e.a, r.name, sqllock.WithLabel("the label"))
		held := e.refusedName(r.Locker, r.name)

		if held.Token != first.Token() || held.Holder.PID != os.Getpid() || held.Holder.Label != "the label" || held.Remaining <= 0 {
			e.Errorf("%s: HeldError = token %d, holder %+v, %s left, want %d, pid %d, label %q, some time",
				r.name, held.Token, held.Holder, held.Remaining, first.Token(), os.Getpid(), "the label")
		}

		e.alive(first)
		e.release(first)

		second := e.acquireName(r.Locker, r.name)
		e.grow("the release of another strategy", first.Token(), second.Token())
		e.refusedName(e.a, r.name)
		e.alive(second)
		e.release(second)

		third := e.acquireName(e.a, r.name)
		e.grow("the release of another strategy", second.Token(), third.Token())
		e.release(third)
	}
}

// The lease in the record ends, though a session may live.
func rivalTakesOver(e *env) {
	for _, r := range e.rivals() {
		first := e.acquireName(e.a, r.name)
		e.Age(e.T, r.name, 2*lease)

		second := e.acquireName(r.Locker, r.name)
		e.grow("a take-over by another strategy", first.Token(), second.Token())

		tx := e.begin("")
		e.lost("Guard() after a take-over", first.Guard(e.ctx(), tx.Tx), sqllock.ReasonTakenOver)

		if err := tx.Rollback(); err != nil {
			e.Errorf("Rollback() = %v", err)
		}

		e.lost("Extend() after a take-over", first.Extend(e.ctx(), lease), sqllock.ReasonTakenOver)
		e.lost("Release() after a take-over", first.Release(e.ctx()), sqllock.ReasonTakenOver)
		e.alive(second)
		e.refusedName(e.a, r.name)
		e.release(second)
		e.release(e.acquireName(e.b, r.name))
	}
}

func rivalMinHold(e *env) {
	const least = 30 * time.Second

	for _, r := range e.rivals() {
		first := e.acquireName(e.a, r.name, sqllock.WithMinHold(least))
		e.release(first)
		e.refusedName(r.Locker, r.name)
		e.Age(e.T, r.name, least)

		second := e.acquireName(r.Locker, r.name)
		e.grow("a minimum hold", first.Token(), second.Token())
		e.release(second)
	}
}

func rivalLockDelay(e *env) {
	for _, r := range e.rivals() {
		first := e.acquireName(e.a, r.name, sqllock.WithLockDelay(lease))
		e.Age(e.T, r.name, lease+10*time.Second)
		e.refusedName(r.Locker, r.name)
		e.Age(e.T, r.name, lease)

		second := e.acquireName(r.Locker, r.name)
		e.grow("a lock delay", first.Token(), second.Token())
		e.lost("Check() after a take-over", first.Check(e.ctx()), sqllock.ReasonTakenOver)
		e.release(second)
	}
}

// A forced release by another strategy ends the lease; a session that has the
// lock besides is the strategy's own to end.
func rivalForces(e *env) {
	for _, r := range e.rivals() {
		first := e.acquireName(r.Locker, r.name)

		if err := ForceRelease(e.ctx(), e.a, r.name, "the reason"); err != nil {
			e.Errorf("ForceRelease(%q) = %v, want nil", r.name, err)
		}

		lost := e.lost("Check() after ForceRelease", first.Check(e.ctx()), sqllock.ReasonForced)
		if lost.Detail != "the reason" {
			e.Errorf("LostError.Detail = %q, want %q", lost.Detail, "the reason")
		}

		second := e.acquireName(e.a, r.name)
		e.grow("a forced release", first.Token(), second.Token())
		e.release(second)
	}
}

// rivalHammer lets all strategies have one name in turn.
func rivalHammer(e *env) {
	lockers := []*sqllock.Locker{e.a, e.b}
	for _, r := range e.rivals() {
		lockers = append(lockers, r.Locker)
	}

	hammerWith(e, lockers, 5)
}
