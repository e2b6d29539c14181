package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func sharedCases() []testCase {
	return []testCase{
		{"shared/readers together and one writer", sharedOnly, sharedReadersOrWriter},
		{"shared/readers of one process", sharedOnly, sharedOneProcess},
		{"shared/a reader who leaves leaves the others", sharedOnly, sharedLeaves},
		{"shared/a reader who comes while the last one leaves", both(sharedOnly, statementsOnly), sharedComes},
		{"shared/a reader before a locked row, beside another", both(sharedOnly, both(statementsOnly, oneWriter)), sharedBlockedBeside},
		{"shared/a reader whose answer was lost", both(sharedOnly, statementsOnly), sharedUnanswered},
		{"shared/a release whose answer was lost", both(sharedOnly, statementsOnly), sharedReleaseUnanswered},
		{"shared/a dead reader", both(sharedOnly, leaseOnly), sharedDead},
		{"shared/who began and has left", both(sharedOnly, leaseOnly), sharedBegan},
		{"shared/a dead reader with a shorter lease", both(sharedOnly, leaseOnly), sharedShorter},
		{"shared/two leave at once", both(sharedOnly, both(statementsOnly, leaseOnly)), sharedBothLeave},
		{"shared/a phase that ended is not joined", both(sharedOnly, both(statementsOnly, leaseOnly)), sharedEnded},
		{"shared/renewals", sharedOnly, sharedRenewed},
		{"shared/a writer in line is not overtaken", both(sharedOnly, queuesOnly), sharedWriterInLine},
		{"shared/readers in line come together", both(sharedOnly, queuesOnly), sharedInLine},
		{"shared/leave the line as they come", both(sharedOnly, queuesOnly), sharedLeaveLine},
		{"shared/say how they stand in line", both(sharedOnly, queuesOnly), sharedStandings},
		{"shared/a guard keeps the writer out", both(sharedOnly, oneWriter), sharedGuarded},
		{"shared/a guard after a writer", both(sharedOnly, leaseOnly), sharedGuardOvertaken},
		{"shared/are listed and taken away", sharedOnly, sharedListed},
		{"shared/do not become exclusive", sharedOnly, sharedUpgrade},
		{"shared/a deadlock through readers", both(sharedOnly, queuesOnly), sharedDeadlock},
		{"shared/hammer", sharedOnly, sharedHammer},
		{"shared/refused where there are none", notShared, sharedRefused},
	}
}

func sharedOnly(e *env) string {
	if !e.features.Shared {
		return "the strategy has no shared locks"
	}

	return ""
}

func notShared(e *env) string {
	if e.features.Shared {
		return "the strategy has shared locks"
	}

	return ""
}

// statementsOnly is for cases about the single statements.
func statementsOnly(e *env) string {
	if e.Faulty == nil {
		return "the strategy sends no statements"
	}

	return ""
}

// read acquires the case's name as a reader.
func (e *env) read(l *sqllock.Locker, options ...sqllock.LockOption) *sqllock.Lock {
	e.Helper()

	return e.acquire(l, append([]sqllock.LockOption{sqllock.WithShared()}, options...)...)
}

// notRead fails unless a try to read is refused.
func (e *env) notRead(l *sqllock.Locker, why string) {
	e.Helper()

	lock, err := l.TryAcquire(e.ctx(), e.name, sqllock.WithShared())
	if err == nil {
		e.release(lock)
	}

	if !errors.Is(err, sqllock.ErrNotAcquired) {
		e.Errorf("TryAcquire(WithShared) %s = %v, want ErrNotAcquired", why, err)
	}
}

// written takes the name as a writer and releases it, at once.
func (e *env) written(l *sqllock.Locker, after string) {
	e.Helper()

	lock, err := l.TryAcquire(e.ctx(), e.name)
	if err != nil {
		e.Fatalf("TryAcquire() after %s = %v, want the lock%s", after, err, e.holder(e.name))
	}

	e.release(lock)
}

func sharedReadersOrWriter(e *env) {
	writer := e.acquire(e.a)

	e.notRead(e.a, "beside a writer of the same process")
	e.notRead(e.b, "beside a writer")
	e.release(writer)

	first := e.read(e.a)
	e.grow("a writer", writer.Token(), first.Token())

	second := e.read(e.b)
	if second.Token() != first.Token() {
		e.Errorf("Token() of readers = %d and %d, want the same", first.Token(), second.Token())
	}

	for _, l := range []*sqllock.Locker{e.a, e.b} {
		if held := e.refused(l); (held.Holder == sqllock.Holder{} || held.Token != first.Token()) {
			e.Errorf("TryAcquire() beside readers = %v, want who holds it", held)
		}
	}

	e.alive(first)
	e.alive(second)
	e.release(first)

	if err := first.Release(e.ctx()); err != nil {
		e.Errorf("Release() again = %v, want nil", err)
	}

	e.refused(e.a)
	e.alive(second)
	e.release(second)

	last := e.acquire(e.b)
	e.grow("readers", second.Token(), last.Token())
	e.release(last)
}

func sharedOneProcess(e *env) {
	type key struct{}

	var locks []*sqllock.Lock

	for i := range 5 {
		lock, err := e.a.Acquire(context.WithValue(e.ctx(), key{}, i), e.name, sqllock.WithShared())
		if err != nil {
			e.Fatalf("Acquire(WithShared) = %v", err)
		}

		if got := lock.Context().Value(key{}); got != i {
			e.Errorf("Value() of the context of reader %d = %v, want its own", i, got)
		}

		locks = append(locks, lock)
	}

	if held, err := e.b.Holders(e.ctx(), sqllock.Filter{Name: e.name}); err != nil || len(held) != 1 {
		e.Errorf("Holders() of five readers of one process = %v, %v, want one", held, err)
	}

	for i, lock := range locks {
		e.refused(e.b)

		if lock.Err() != nil {
			e.Errorf("Err() of reader %d = %v, want nil", i, lock.Err())
		}

		e.release(lock)

		if !errors.Is(lock.Err(), sqllock.ErrReleased) || !errors.Is(context.Cause(lock.Context()), sqllock.ErrReleased) {
			e.Errorf("Err() and cause after the release of reader %d = %v, %v, want ErrReleased", i, lock.Err(), context.Cause(lock.Context()))
		}
	}

	e.written(e.b, "the release of all readers")
}

func sharedLeaves(e *env) {
	r, s := e.request(), e.request()
	r.Mode, s.Mode = strategies.Shared, strategies.Shared

	one, other := e.grant(e.Strategy, r), e.grant(e.Other, s)

	for range 2 {
		if err := one.Release(e.ctx()); err != nil {
			e.Fatalf("Release() of a reader = %v, want nil", err)
		}
	}

	e.refused(e.a)

	if err := other.Check(e.ctx()); err != nil {
		e.Errorf("Check() of the other reader = %v, want nil", err)
	}

	if err := other.Renew(e.ctx(), lease); err != nil {
		e.Errorf("Renew() of the other reader = %v, want nil", err)
	}

	// Somebody else's attempts left nothing.
	if err := e.Strategy.Settle(e.ctx(), r); err != nil {
		e.Errorf("Settle() of one who has left = %v, want nil", err)
	}

	e.refused(e.b)

	if err := other.Release(e.ctx()); err != nil {
		e.Errorf("Release() of the last reader = %v, want nil", err)
	}

	e.written(e.a, "the release of the last reader")
}

// The last reader leaves, and stops before or after each of its statements; another one comes meanwhile. It must
// not lose the name to a writer.
func sharedComes(e *env) {
	for _, statement := range []string{"share.leave", "share.phase", "share.longest", "share.end"} {
		for _, when := range []When{Before, After} {
			first := e.read(e.a)
			reached, resume := e.script.Pause(statement, when)

			var left sync.WaitGroup

			left.Go(func() { _ = first.Release(e.ctx()) })

			e.reach(reached, statement)

			second, err := e.b.TryAcquire(e.ctx(), e.name, sqllock.WithShared())
			if err != nil {
				e.Errorf("TryAcquire(WithShared) while the last reader is at %s = %v, want the lock", statement, err)
			}

			resume()
			left.Wait()

			if err != nil {
				continue
			}

			e.alive(second)
			e.refused(e.a)
			e.release(second)
			e.written(e.a, "a reader came while the last one left")
		}
	}
}

// Somebody has the row of the name locked when it decides about a reader, and another reader has come before that. The
// name stays with that one, whatever becomes of the first.
func sharedBlockedBeside(e *env) {
	request, beside := e.request(), e.request()
	request.Mode, beside.Mode = strategies.Shared, strategies.Shared

	reached, resume := e.script.Pause(e.op("acquire"), Before)
	decided, conclude := e.script.Pause(e.op("acquire"), After)

	var (
		tried sync.WaitGroup
		grant single.Grant
		err   error
	)

	tried.Go(func() { grant, err = single.TryAcquire(e.ctx(), e.Strategy, request) })
	e.reach(reached, e.op("acquire"))

	other := e.grant(e.Other, beside)
	unlock := e.LockRow(e.T, e.name)

	resume()
	e.reach(decided, e.op("acquire"))
	unlock()
	conclude()
	tried.Wait()

	if err != nil && !errors.Is(err, strategies.ErrNotAcquired) {
		e.Errorf("TryAcquire() of a reader beside a row lock = %v, want ErrNotAcquired or a grant", err)
	}

	if err := other.Check(e.ctx()); err != nil {
		e.Errorf("Check() of the other reader = %v, want nil", err)
	}

	e.refused(e.b)
	e.releaseGrant(other)

	if err == nil {
		e.refused(e.b)
		e.releaseGrant(grant)
	}

	e.written(e.b, "the readers")
}

// The answers to its statements are lost. It is a reader in the end, or it left nothing behind.
func sharedUnanswered(e *env) {
	for _, besides := range []bool{false, true} {
		for _, statement := range []string{"share.enter", "share.join", e.op("acquire")} {
			var other *sqllock.Lock

			e.written(e.b, "what was before")

			if besides {
				other = e.read(e.b)
			}

			e.script.Fail(statement, 1, After, nil)

			lock, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithShared())
			e.script.Reset()

			if err != nil {
				e.Fatalf("Acquire(WithShared) with a lost answer to %s = %v, want the lock", statement, err)
			}

			e.alive(lock)
			e.refused(e.b)
			e.release(lock)

			if besides {
				e.alive(other)
				e.refused(e.a)
				e.release(other)
			}

			e.poll("the name is free", func() error {
				writer, err := e.b.TryAcquire(e.ctx(), e.name)
				if err == nil {
					e.release(writer)
				}

				return err
			})
		}
	}
}

func sharedReleaseUnanswered(e *env) {
	for _, statement := range []string{"share.leave", "share.phase", "share.longest", "share.end"} {
		lock := e.read(e.a)

		e.script.Fail(statement, 1, After, nil)

		err := lock.Release(e.ctx())
		e.script.Reset()

		if err != nil && !e.features.ConnectionHeld {
			e.Errorf("Release() with a lost answer to %s = %v, want nil", statement, err)
		}

		e.poll("the name is free", func() error {
			writer, err := e.b.TryAcquire(e.ctx(), e.name)
			if err == nil {
				e.release(writer)
			}

			return err
		})
	}
}

func sharedDead(e *env) {
	r := e.request()
	r.Mode = strategies.Shared

	dead := e.grant(e.Strategy, r)
	e.refused(e.a)
	e.age(2 * lease)

	writer := e.acquire(e.b)
	e.grow("a dead reader", dead.Token, writer.Token())
	e.lost("Renew() of the dead reader", dead.Renew(e.ctx(), lease), sqllock.ReasonTakenOver)
	e.lost("Check() of the dead reader", dead.Check(e.ctx()), sqllock.ReasonTakenOver)
	e.lost("Release() of the dead reader", dead.Release(e.ctx()), sqllock.ReasonTakenOver)
	e.alive(writer)
	e.release(writer)

	again := e.read(e.a)
	e.grow("a writer after the dead reader", writer.Token(), again.Token())
	e.release(again)
	e.written(e.b, "readers")
}

// Who began to read and has left is not told as a holder, also when the other reader dies.
func sharedBegan(e *env) {
	first := e.read(e.a, sqllock.WithLabel("first"))

	r := e.request()
	r.Mode = strategies.Shared
	e.grant(e.Other, r)
	e.release(first)

	for _, expired := range []bool{false, true} {
		if expired && e.AgeReaders == nil {
			continue
		}

		if expired {
			e.AgeReaders(e.T, e.name, 2*lease)
		}

		listed, err := e.a.Holders(e.ctx(), sqllock.Filter{Name: e.name})
		if err != nil || len(listed) != 1 || listed[0].Holder.Label == "first" || listed[0].Held() == expired {
			e.Errorf("Holders() after the first of two readers has left = %+v, %v, want the other, held %t", listed, err, !expired)
		}

		if held := e.refused(e.a); held.Holder.Label == "first" {
			e.Errorf("TryAcquire() after the first of two readers has left = %v, want the other", held)
		}
	}
}

// One with a long lease leaves; the other one's is what a writer waits for then.
func sharedShorter(e *env) {
	long := e.read(e.a)

	r := e.request()
	r.Mode, r.Lease = strategies.Shared, lease/4
	short := e.grant(e.Other, r)

	e.release(long)

	held := e.refused(e.a)
	if held.Holder.Label != r.Holder.Label {
		e.Errorf("Holder after one of two readers has left = %s, want the other", held.Holder)
	}

	if held.Remaining > lease/4+resolution {
		e.Errorf("Remaining after the reader with the longer lease has left = %s, want at most %s", held.Remaining, lease/4)
	}

	if err := short.Renew(e.ctx(), lease/2); err != nil {
		e.Errorf("Renew() = %v, want nil", err)
	}

	if held := e.refused(e.b); held.Remaining < lease/3 {
		e.Errorf("Remaining after the renewal = %s, want about %s", held.Remaining, lease/2)
	}

	e.releaseGrant(short)

	e.written(e.a, "both have left")
}

// Each sees the leases of those who stay then. The one who has seen the other does not make the lease longer again.
func sharedBothLeave(e *env) {
	long := e.read(e.a)

	r, s := e.request(), e.request()
	r.Mode, r.Lease = strategies.Shared, lease/2
	s.Mode, s.Lease = strategies.Shared, lease/4
	middle, short := e.grant(e.Other, r), e.grant(e.Other, s)

	reached, resume := e.script.Pause("share.shorten", Before)

	var left sync.WaitGroup

	left.Go(func() { e.release(long) })

	e.reach(reached, "share.shorten")

	e.releaseGrant(middle)

	resume()
	left.Wait()

	if held := e.refused(e.b); held.Remaining > lease/4+resolution {
		e.Errorf("Remaining after the readers with longer leases have left = %s, want at most %s", held.Remaining, lease/4)
	}

	e.releaseGrant(short)

	e.written(e.a, "all have left")
}

// A reader is about to join a phase, which ends. Then a writer has the name, and who began the phase asks again.
func sharedEnded(e *env) {
	r := e.request()
	r.Mode = strategies.Shared
	began := e.grant(e.Other, r)

	reached, resume := e.script.Pause("share.join", Before)
	joined := make(chan *sqllock.Lock, 1)

	go func() {
		lock, err := e.a.Acquire(e.ctx(), e.name, sqllock.WithShared())
		if err != nil {
			e.Errorf("Acquire(WithShared) of a phase that ended meanwhile = %v, want the lock", err)
		}

		joined <- lock
	}()

	e.reach(reached, "share.join")
	e.age(2 * lease)

	writer := e.acquire(e.b)
	e.release(writer)

	again := e.grant(e.Other, r)
	e.grow("a writer", writer.Token(), again.Token)
	e.grow("its first phase", began.Token, again.Token)
	resume()

	if lock := <-joined; lock != nil {
		e.grow("a writer", writer.Token(), lock.Token())
		e.alive(lock)
		e.release(lock)
	}

	e.releaseGrant(again)

	e.written(e.b, "all have left")
}

func sharedRenewed(e *env) {
	one, other := e.read(e.a), e.read(e.b)

	for _, lock := range []*sqllock.Lock{one, other} {
		if err := lock.Extend(e.ctx(), 2*lease); err != nil {
			e.Errorf("Extend() = %v, want nil", err)
		}
	}

	e.release(one)

	if held := e.refused(e.a); held.Remaining < lease {
		e.Errorf("Remaining after Extend(%s) = %s", 2*lease, held.Remaining)
	}

	e.release(other)
	e.written(e.a, "both have left")
}

func sharedWriterInLine(e *env) {
	reader := e.read(e.a)
	writer := e.waiting(e.b)
	e.inLine(e.name, 1)

	// Readers may join those of their process for a moment.
	e.elapse(100 * time.Millisecond)

	e.notRead(e.a, "behind a writer in line")
	e.notRead(e.b, "behind a writer in line, of its process")

	late := e.waiting(e.a, sqllock.WithShared())
	e.inLine(e.name, 2)
	e.stillWaiting(late, "a writer is in line before it")
	e.release(reader)

	lock := e.get(writer)
	e.grow("readers", reader.Token(), lock.Token())
	e.stillWaiting(late, "a writer has the lock")
	e.release(lock)

	last := e.get(late)
	e.grow("a writer", lock.Token(), last.Token())
	e.release(last)
}

// inLine waits until so many are in line for a name.
func (e *env) inLine(name string, n int) {
	e.Helper()

	e.poll(fmt.Sprintf("%d wait for %q", n, name), func() error {
		waiters, err := e.b.Waiters(e.ctx(), sqllock.WaiterFilter{Name: name})
		if err == nil && len(waiters) != n {
			err = fmt.Errorf("Waiters() = %v", waiters)
		}

		return err
	})
}

func sharedInLine(e *env) {
	writer := e.acquire(e.a)

	readers := []<-chan *sqllock.Lock{e.waiting(e.a, sqllock.WithShared()), e.waiting(e.b, sqllock.WithShared()), e.waiting(e.b, sqllock.WithShared())}
	e.inLine(e.name, 2)
	e.release(writer)

	var locks []*sqllock.Lock
	for _, reader := range readers {
		locks = append(locks, e.get(reader))
	}

	for _, lock := range locks {
		e.alive(lock)
	}

	e.refused(e.a)

	for _, lock := range locks {
		e.release(lock)
	}

	e.written(e.b, "the readers")
}

// sharedLeaveLine: nobody is behind a reader that was granted the name in its turn, however late it leaves the line.
func sharedLeaveLine(e *env) {
	request := e.newcomer()
	request.Mode = strategies.Shared
	first := e.grant(e.Strategy, request)

	for i, join := range []string{"another process", "the same process"} {
		waiter := e.someone()
		waiter.Shared = true
		e.enqueue(waiter, lease)

		turn := e.request()
		turn.Mode, turn.Process, turn.Wait = strategies.Shared, waiter.Process, waiter.ID

		if i == 0 {
			defer e.releaseGrant(e.grant(e.Other, turn))
		} else if joined, err := e.queuer(e.Strategy).Join(e.ctx(), first.Grant, turn); !joined || err != nil {
			e.Errorf("Join() = %t, %v, want true", joined, err)
		}

		waiters, err := e.queuer(e.Other).Waiters(e.ctx(), strategies.WaiterFilter{Name: e.name})
		if len(waiters) > 0 || err != nil {
			e.Errorf("Waiters() after a join by %s = %v, %v, want none", join, waiters, err)
		}
	}

	e.releaseGrant(first)
}

func sharedStandings(e *env) {
	queuer, _ := e.Strategy.(strategies.Queuer)
	reader := e.read(e.a)

	wait := func(process, id string, shared bool) {
		_, err := single.Enqueue(e.ctx(), queuer, strategies.Waiter{Name: e.name, Process: process, ID: id, Shared: shared}, time.Minute)
		if err != nil {
			e.Fatalf("Enqueue(%s) = %v", id, err)
		}
	}
	ahead := func(process string, want int, taken bool, why string) {
		e.Helper()

		all, err := queuer.Stand(e.ctx(), process, 0)
		if err != nil || len(all) != 1 || all[0].Ahead != want || (all[0].Taken > 0) != taken {
			e.Errorf("Stand() of %s = %+v, %v, want %d ahead and taken %t", why, all, err, want, taken)
		}
	}

	mine := caseName()
	wait(mine+"1", "1"+mine, true)
	wait(mine+"2", "2"+mine, true)
	wait(mine+"3", "3"+mine, false)
	wait(mine+"4", "4"+mine, true)

	ahead(mine+"1", 0, false, "a reader that is first")
	ahead(mine+"2", 0, false, "a reader with only a reader ahead")
	ahead(mine+"3", 2, true, "a writer")
	ahead(mine+"4", 3, false, "a reader behind a writer")

	for i := range 4 {
		if err := queuer.Leave(e.ctx(), fmt.Sprint(mine, i+1), []string{fmt.Sprint(i+1, mine)}); err != nil {
			e.Errorf("Leave() = %v", err)
		}
	}

	e.release(reader)
}

func sharedGuarded(e *env) {
	for _, level := range e.levels() {
		reader := e.read(e.a)
		tx := e.begin(level)

		if err := reader.Guard(e.ctx(), tx.Tx); err != nil {
			e.Fatalf("Guard() of a reader with isolation %q = %v, want nil", level, err)
		}

		// Other readers come and go, and renewals pass.
		other := e.read(e.b)
		e.alive(other)

		if err := reader.Extend(e.ctx(), lease); err != nil {
			e.Errorf("Extend() beside the guard = %v, want nil", err)
		}

		e.release(other)
		e.release(reader)
		_ = e.refusedUnheld(e.b)
		e.commit(tx)

		writer := e.acquire(e.b)
		e.grow("guarded readers", reader.Token(), writer.Token())
		e.release(writer)
	}
}

func sharedGuardOvertaken(e *env) {
	for _, level := range e.levels() {
		r := e.request()
		r.Mode = strategies.Shared
		reader := e.grant(e.Strategy, r)

		e.age(2 * lease)
		e.release(e.acquire(e.b))

		tx := e.begin(level)
		e.lost("Guard() of a reader after a writer", reader.Guard(e.ctx(), tx.Tx), sqllock.ReasonTakenOver)
		e.rollback(tx)

		// Readers of another phase do not make up for it.
		later := e.read(e.a)
		tx = e.begin(level)
		e.lost("Guard() of a reader after a writer", reader.Guard(e.ctx(), tx.Tx), sqllock.ReasonTakenOver)
		e.rollback(tx)
		e.release(later)
	}
}

func sharedListed(e *env) {
	one, other := e.read(e.a, sqllock.WithLabel("one")), e.read(e.b, sqllock.WithLabel("other"))

	held, err := e.a.Holders(e.ctx(), sqllock.Filter{Name: e.name})
	if err != nil || len(held) != 2 {
		e.Fatalf("Holders() = %v, %v, want both readers", held, err)
	}

	labels := map[string]bool{}

	for _, status := range held {
		labels[status.Holder.Label] = true

		if !status.Shared || !status.Held() || status.Token != one.Token() {
			e.Errorf("Holders() = %+v, want a reader with token %d", status, one.Token())
		}
	}

	if !labels["one"] || !labels["other"] {
		e.Errorf("Holders() = %v, want both labels", held)
	}

	status, err := e.b.Inspect(e.ctx(), e.name)
	if err != nil || !status.Shared || !status.Held() {
		e.Errorf("Inspect() = %+v, %v, want one of the readers", status, err)
	}

	if err := ForceRelease(e.ctx(), e.b, e.name, "the suite says so"); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	for _, lock := range []*sqllock.Lock{one, other} {
		e.lost("Check() after ForceRelease()", lock.Check(e.ctx()), sqllock.ReasonForced, sqllock.ReasonSessionGone)
	}

	writer := e.acquire(e.a)
	e.release(writer)

	status, err = e.b.Inspect(e.ctx(), e.name)
	if err != nil || status.Shared {
		e.Errorf("Inspect() after a writer = %+v, %v, want no reader", status, err)
	}
}

func sharedUpgrade(e *env) {
	reader := e.read(e.a)

	for _, options := range [][]sqllock.LockOption{nil, {sqllock.WithReentrant()}} {
		_, err := e.a.TryAcquire(reader.Context(), e.name, options...)
		if !errors.Is(err, sqllock.ErrUnsupported) || errors.Is(err, sqllock.ErrNotAcquired) {
			e.Errorf("TryAcquire() under a shared lock = %v, want ErrUnsupported", err)
		}
	}

	again, err := e.a.Acquire(reader.Context(), e.name, sqllock.WithShared(), sqllock.WithReentrant())
	if err != nil {
		e.Fatalf("Acquire(WithShared, WithReentrant) under a shared lock = %v, want the lock", err)
	}

	e.release(again)
	e.alive(reader)
	e.release(reader)

	writer := e.acquire(e.a, sqllock.WithReentrant())

	inner, err := e.a.Acquire(writer.Context(), e.name, sqllock.WithShared(), sqllock.WithReentrant())
	if err != nil || inner.Token() != writer.Token() {
		e.Fatalf("Acquire(WithShared, WithReentrant) under the writer's lock = %v, %v, want the writer's", inner, err)
	}

	e.release(inner)
	e.notRead(e.b, "beside a writer who reads, too")
	e.release(writer)
	e.written(e.b, "the writer")
}

// A reader waits for what a writer holds who waits for the readers.
func sharedDeadlock(e *env) {
	const second = " second"

	reader, writer := e.read(e.a), e.acquireName(e.b, e.name+second)
	failed := make(chan error, 2)

	wait := func(l *sqllock.Locker, under *sqllock.Lock, name string) {
		lock, err := l.Acquire(under.Context(), name, sqllock.WithMaxWait(e.patience))
		failed <- err

		if err == nil {
			e.release(lock)
		}

		e.release(under)
	}

	go wait(e.a, reader, e.name+second)
	go wait(e.b, writer, e.name)

	deadlocks := 0

	for range 2 {
		if err := <-failed; errors.Is(err, sqllock.ErrDeadlock) {
			deadlocks++
		} else if err != nil {
			e.Errorf("Acquire() = %v, want the lock or ErrDeadlock", err)
		}
	}

	if deadlocks != 1 {
		e.Errorf("%d waits ended with ErrDeadlock, want one", deadlocks)
	}
}

// Readers and writers of both processes come and go. Nobody reads while somebody writes.
func sharedHammer(e *env) {
	const goroutines, rounds = 6, 6

	var (
		readers, writers atomic.Int64
		written          atomic.Int64 // the largest token of a writer
		group            sync.WaitGroup
	)

	work := func(l *sqllock.Locker, shared bool) {
		var options []sqllock.LockOption
		if shared {
			options = append(options, sqllock.WithShared())
		}

		lock, err := l.Acquire(e.ctx(), e.name, options...)
		if err != nil {
			e.Errorf("Acquire(shared %t) = %v", shared, err)

			return
		}

		if shared {
			readers.Add(1)
			e.elapse(time.Millisecond)

			if n := writers.Load(); n != 0 {
				e.Errorf("%d writers while a reader has the lock, want none", n)
			}

			if latest := written.Load(); lock.Token() <= latest {
				e.Errorf("token of a reader = %d, want more than that of the writer before, %d", lock.Token(), latest)
			}

			readers.Add(-1)
		} else {
			if n := writers.Add(1); n != 1 || readers.Load() != 0 {
				e.Errorf("%d writers and %d readers at once, want one writer", n, readers.Load())
			}

			e.elapse(time.Millisecond)
			written.Store(lock.Token())
			writers.Add(-1)
		}

		e.release(lock)
	}

	for i := range goroutines {
		group.Go(func() {
			for n := range rounds {
				work([]*sqllock.Locker{e.a, e.b}[i%2], (i/2+n)%3 != 0)
			}
		})
	}

	group.Wait()
	e.written(e.a, "the hammer")
}

func sharedRefused(e *env) {
	_, err := e.a.TryAcquire(e.ctx(), e.name, sqllock.WithShared())
	if !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("TryAcquire(WithShared) = %v, want ErrUnsupported", err)
	}
}
