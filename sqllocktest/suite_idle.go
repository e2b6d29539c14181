package sqllocktest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// idleCases are about names that nobody uses any more, and what the strategy removes of them. They make theirs look old, by
// more than any other case does.
func idleCases() []testCase {
	return []testCase{
		{"idle/the next token is larger", idleOnly, idleRemoved},
		{"idle/the next token is larger though the clock went back", both(idleOnly, raisesOnly), idleClockBack},
		{"idle/a smaller token lowers nothing", both(idleOnly, raisesOnly), idleSmaller},
		{"idle/many new names", both(idleOnly, raisesOnly), idleMany},
		{"idle/several names at once", both(idleOnly, both(raisesOnly, severalOnly)), idleSeveral},
		{"idle/readers after it", both(idleOnly, both(raisesOnly, sharedOnly)), idleRead},
		{"idle/leaves who holds it", idleOnly, idleHeld},
		{"idle/leaves readers", both(idleOnly, sharedOnly), idleReaders},
		{"idle/leaves a minimum hold", both(idleOnly, minHoldOnly), idleMinHold},
		{"idle/leaves what is guarded", both(idleOnly, both(guardedOnly, oneWriter)), idleGuarded},
		{"idle/a late guard", both(idleOnly, both(guardedOnly, leaseOnly)), idleLateGuard},
		{"idle/leaves who waits", both(idleOnly, queuesOnly), idleWaiter},
		{"idle/leaves a tick", both(idleOnly, notesOnly), idleTick},
		{"idle/leaves a loss that is to be told", idleOnly, idleForced},
		{"idle/a release without an answer", both(idleOnly, leaseOnly), idleReleased},
		{"idle/a reader's second release", both(idleOnly, sharedOnly), idleReaderReleased},
		{"idle/a row that was made and is not ready", both(idleOnly, databaseOnly), idleUnready},
		{"idle/beside acquisitions", idleOnly, idleHammer},
		{"idle/names of other strategies", both(idleOnly, rivalsOnly), idleRivals},
	}
}

func idleOnly(e *env) string {
	if e.Age == nil {
		e.Fatal("Fixture.Age is nil")
	}

	return ""
}

// idleAge is for how long names are not in use that the cases have removed. No case that runs beside them makes others so old.
const idleAge = 2 * time.Hour

// reapIdle has all removed that is idle.
func (e *env) reapIdle(s strategies.Strategy) (removed int) {
	e.Helper()

	for more := true; more; {
		var n int

		// Whoever writes at the same time may be in the way, longer than a call waits.
		e.poll("the reaper has its turn", func() (err error) {
			n, more, err = s.ReapIdle(e.ctx(), idleAge, 100)
			if err != nil && !lockedForNow(err) {
				e.Fatalf("ReapIdle() = %v, want nil", err)
			}

			return err
		})

		if more && n == 0 {
			e.Error("ReapIdle() = 0, true, want some that are removed if there may be more")

			break
		}

		removed += n
	}

	return removed
}

// gone makes a name look old that nobody has, and has it removed.
func (e *env) gone(name string) {
	e.Helper()
	e.Age(e.T, name, 2*idleAge)

	// Whoever removes at the same time may be in the way.
	e.poll("ReapIdle removes "+name, func() error {
		e.reapIdle(e.Strategy)

		switch status, found, err := e.Other.Status(e.ctx(), name); {
		case err != nil:
			return err
		case found:
			return fmt.Errorf("it is there: %+v", status)
		default:
			return nil
		}
	})
}

// stays fails if the case's name is removed, whose last token this is, while another one is.
func (e *env) stays(why string, token int64) {
	e.Helper()

	other := e.name + " idle"
	e.release(e.acquireName(e.b, other))
	e.gone(other)

	if status, found, err := e.Other.Status(e.ctx(), e.name); err != nil || !found || status.Token != token {
		e.Errorf("Status() after ReapIdle() = %+v, %t, %v, want token %d still, as %s", status, found, err, token, why)
	}
}

func idleRemoved(e *env) {
	last := int64(0)

	for range 3 {
		lock := e.acquire(e.a)
		e.grow("the removal of an idle name", last, lock.Token())
		last = lock.Token()

		e.release(lock)
		e.gone(e.name)
	}
}

// far lets a name have a token that the clock does not reach in the case, as after it went back. The name is free again.
func (e *env) far(name string, by int64) int64 {
	e.Helper()

	r := e.request()
	r.Name = name

	grant := e.grant(e.Strategy, r)
	raised := e.raise(grant, grant.Token+by)
	e.releaseGrant(raised)

	return raised.Token
}

func idleClockBack(e *env) {
	for range 2 {
		last := e.far(e.name, ahead)
		e.gone(e.name)

		lock := e.acquire(e.b)
		e.grow("the removal of a name whose clock went back", last, lock.Token())
		e.release(lock)
	}
}

func idleSmaller(e *env) {
	last := e.far(e.name, 2*ahead)
	e.gone(e.name)

	for i := range 2 {
		other := fmt.Sprintf("%s/%d", e.name, i)
		e.release(e.acquireName(e.a, other))
		e.gone(other)
	}

	lock := e.acquire(e.b)
	e.grow("the removal of others", last, lock.Token())
	e.release(lock)
}

// Half of them go together where there are batches.
func idleMany(e *env) {
	requests := e.requests(40)
	last := make(map[string]int64, len(requests))

	for _, r := range requests {
		last[r.Name] = e.far(r.Name, ahead)
	}

	for _, r := range requests {
		e.gone(r.Name)
	}

	var grants []single.Grant

	alone := requests

	if !e.features.Unbatched && !e.harness.Plain {
		for _, g := range e.acquireAll(batcher{e.Strategy, e}, requests[:20]) {
			grants = append(grants, e.single(g))
		}

		alone = requests[20:]
	}

	for _, r := range alone {
		grants = append(grants, e.grant(e.Strategy, r))
	}

	for i, grant := range grants {
		e.grow("the removal of "+requests[i].Name, last[requests[i].Name], grant.Token)
		e.releaseGrant(grant)
	}
}

func idleSeveral(e *env) {
	names := e.several(3)
	last := make([]int64, len(names))

	for i, name := range names {
		last[i] = e.far(name, ahead)
	}

	for _, name := range names[1:] {
		e.gone(name)
	}

	locks := e.acquireSeveral(e.b, names)
	for i, name := range names {
		e.grow("the removal of "+name, last[i], locks.TokenOf(name))
	}

	e.releaseSeveral(locks)
}

func idleRead(e *env) {
	last := e.far(e.name, ahead)
	e.gone(e.name)

	reader := e.read(e.a)
	e.grow("the removal of the row", last, reader.Token())
	e.refused(e.b)

	last = reader.Token()
	e.release(reader)
	e.gone(e.name)

	writer := e.acquire(e.b)
	e.grow("the removal after a reader", last, writer.Token())
	e.release(writer)
}

func idleHeld(e *env) {
	r := e.request()
	r.Lease = 3 * idleAge // or others of the suite, which reap, may find it expired
	grant := e.grant(e.Strategy, r)
	e.age(2 * idleAge)

	if err := grant.Renew(e.ctx(), r.Lease); err != nil {
		e.Errorf("Renew() of a lock that is older = %v, want nil", err)
	}

	e.stays("it is held", grant.Token)

	if err := grant.Check(e.ctx()); err != nil {
		e.Errorf("Check() after ReapIdle() = %v, want nil", err)
	}

	e.releaseGrant(grant)
}

func idleReaders(e *env) {
	r := e.request()
	r.Mode, r.Lease = strategies.Shared, 3*idleAge
	grant := e.grant(e.Strategy, r)

	e.age(2 * idleAge)

	if err := grant.Renew(e.ctx(), r.Lease); err != nil {
		e.Errorf("Renew() of a reader that is older = %v, want nil", err)
	}

	e.stays("it has a reader", grant.Token)

	if err := grant.Check(e.ctx()); err != nil {
		e.Errorf("Check() of a reader after ReapIdle() = %v, want nil", err)
	}

	e.releaseGrant(grant)
}

func idleMinHold(e *env) {
	lock := e.acquire(e.a, sqllock.WithMinHold(lease+3*idleAge), sqllock.WithLease(lease))
	e.release(lock)
	e.age(2 * idleAge)
	e.stays("a minimum hold keeps it taken", lock.Token())
	e.refused(e.b)
}

func idleGuarded(e *env) {
	grant := e.grant(e.Strategy, e.request())
	e.age(2 * idleAge)

	tx := e.begin("")
	if err := grant.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v, want nil", err)
	}

	e.releaseGrant(grant)
	e.stays("it is guarded", grant.Token)
	e.commit(tx)
	e.gone(e.name)
}

func idleLateGuard(e *env) {
	r := e.request()
	grant := e.grant(e.Strategy, r)

	// It does not know that it has ended.
	if err := e.Other.Settle(e.ctx(), r); err != nil {
		e.Fatalf("Settle() = %v, want nil", err)
	}

	e.gone(e.name)

	late := func(when string) {
		tx := e.begin("")
		e.lost("Guard() "+when, grant.Guard(e.ctx(), tx.Tx))
		e.rollback(tx)
	}

	late("after the removal of the row")

	next := e.acquire(e.b)
	late("after a row was made anew")
	e.alive(next)
	e.release(next)
	late("after that was released")
}

func idleWaiter(e *env) {
	lock := e.acquire(e.a)
	w := e.someone()
	e.enqueue(w, 4*lease)
	e.release(lock)
	e.age(2 * idleAge)
	e.stays("somebody waits for it", lock.Token())

	if err := e.queuer(e.Strategy).Leave(e.ctx(), w.Process, []string{w.ID}); err != nil {
		e.Errorf("Leave() = %v, want nil", err)
	}

	e.gone(e.name)
}

func idleTick(e *env) {
	grant := e.grant(e.Strategy, e.request())
	tick := fireTime().UnixMicro()

	if noted, err := e.noter(e.Strategy).Mark(e.ctx(), e.name, e.ownerOf(), tick); err != nil || !noted {
		e.Fatalf("Mark() = %t, %v, want true", noted, err)
	}

	e.releaseGrant(grant)
	e.age(2 * idleAge)
	e.stays("its tick is remembered", grant.Token)

	if notes, err := e.noter(e.Other).Notes(e.ctx(), e.name); err != nil || notes.Mark != tick {
		e.Errorf("Notes() after ReapIdle() = %+v, %v, want the tick %d", notes, err, tick)
	}
}

// ownerOf is the owner of the case's name.
func (e *env) ownerOf() string {
	e.Helper()

	status, _, err := e.Other.Status(e.ctx(), e.name)
	if err != nil {
		e.Fatalf("Status() = %v, want nil", err)
	}

	return status.Owner
}

func idleForced(e *env) {
	grant := e.grant(e.Strategy, e.request())

	if forced, err := e.Other.ForceRelease(e.ctx(), strategies.Status{Name: e.name, Token: grant.Token}, "the reason"); err != nil || !forced {
		e.Fatalf("ForceRelease() = %t, %v, want true", forced, err)
	}

	e.age(2 * idleAge)
	e.stays("its holder has not been told of its loss", grant.Token)
	e.lost("Check() of a lock that was taken away", grant.Check(e.ctx()), sqllock.ReasonForced)
}

func idleReleased(e *env) {
	grant := e.grant(e.Strategy, e.request())

	e.script.Fail(e.op("release"), 1, After, nil)

	if err := grant.Release(e.ctx()); err == nil {
		e.Fatal("Release() = nil without an answer, want an error")
	}

	e.script.Reset()

	e.gone(e.name)
	e.releaseGrant(grant)
}

// The core repeats a release whose answer was lost.
func idleReaderReleased(e *env) {
	r := e.request()
	r.Mode = strategies.Shared

	grant := e.grant(e.Strategy, r)
	e.releaseGrant(grant)
	e.gone(e.name)
	e.releaseGrant(grant)
}

// Whoever makes a row dies before it has a token: nobody else is to be kept out, and its token is larger all the same.
func idleUnready(e *env) {
	last := e.acquire(e.a)
	e.release(last)
	e.gone(e.name)

	e.script.Fail("ready", 1, Before, nil)
	r := e.request()

	grant, err := single.TryAcquire(e.ctx(), e.Strategy, r)
	if err == nil {
		// A session that was only kept broke, and the strategy has asked again on another.
		e.grow("a row that was not ready", last.Token(), grant.Token)

		if err := grant.Release(e.ctx()); err != nil {
			e.Errorf("Release() = %v, want nil", err)
		}

		e.Skip("it makes the row and grants it in one, or asks again by itself")
	}

	e.script.Reset()

	next := e.acquire(e.b)
	e.grow("a row that was not ready", last.Token(), next.Token())
	e.release(next)
	e.release(e.acquire(e.a))

	_ = e.Strategy.Settle(e.ctx(), r)
}

// Each of some names is used again and again, and removed as soon as it is free.
func idleHammer(e *env) {
	const (
		names  = 4
		enough = 20
	)

	var (
		stop     = make(chan struct{})
		group    sync.WaitGroup
		acquired [names]atomic.Int64
		removed  atomic.Int64
	)

	for i := range names {
		name := fmt.Sprintf("%s/%d", e.name, i)
		s := []strategies.Strategy{e.Strategy, e.Other}[i%2]

		group.Go(func() {
			for last := int64(0); ; {
				select {
				case <-stop:
					return
				default:
				}

				r := e.request()
				r.Name = name

				grant, err := single.TryAcquire(e.ctx(), s, r)
				if errors.Is(err, sqllock.ErrNotAcquired) || errors.Is(err, strategies.ErrBusy) {
					continue
				}

				if err != nil {
					e.Errorf("TryAcquire(%q) = %v, want nil", name, err)

					return
				}

				e.grow("a removal beside it", last, grant.Token)
				last = grant.Token

				// On SQLite one writer may not get its turn for a while, beside so many.
				e.poll("the release of "+name, func() error { return grant.Release(e.ctx()) })

				acquired[i].Add(1)
				e.Age(e.T, name, 2*idleAge)
			}
		})
	}

	done := func() bool {
		for i := range acquired {
			if acquired[i].Load() < enough {
				return false
			}
		}

		return removed.Load() >= enough
	}

	for deadline := time.Now().Add(4 * e.patience); !done() && !e.Failed(); {
		if time.Now().After(deadline) {
			e.Errorf("removed %d names, want %d and as many acquisitions of each", removed.Load(), enough)

			break
		}

		started := time.Now()

		removed.Add(int64(e.reapIdle(e.Other)))

		// On SQLite it is the one writer, and other cases use the file, too. In the background pauses are longer.
		e.elapse(2 * time.Since(started))
	}

	close(stop)
	group.Wait()
}

func idleRivals(e *env) {
	for _, r := range e.rivals() {
		first := e.acquireName(r.Locker, r.name)
		e.release(first)
		e.gone(r.name)

		second := e.acquireName(r.Locker, r.name)
		e.grow("the removal by another strategy", first.Token(), second.Token())
		e.refusedName(e.a, r.name)
		e.alive(second)
		e.release(second)
		e.gone(r.name)

		third := e.acquireName(e.a, r.name)
		e.grow("the removal of another strategy's", second.Token(), third.Token())
		e.refusedName(r.Locker, r.name)
		e.release(third)
	}
}
