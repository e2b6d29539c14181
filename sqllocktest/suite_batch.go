package sqllocktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

func batchOnly(e *env) batcher {
	e.Helper()

	if e.features.Unbatched {
		e.Skip("the strategy has no batches, or not on this database")
	}

	return batcher{e.Strategy, e}
}

// batcher is a strategy whose grants end with the case: those of a session that is the pool's would otherwise keep that.
type batcher struct {
	strategies.Strategy

	e *env
}

func (b batcher) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := b.Strategy.Acquire(ctx, requests)

	for _, g := range grants {
		if !g.None() && b.e.features.ConnectionHeld {
			b.e.held = append(b.e.held, single.Grant{Grant: g, Strategy: b.Strategy})
		}
	}

	return grants, errs
}

// release ends grants in one call.
func (b batcher) release(grants []strategies.Grant) []error {
	_, errs := b.Release(b.e.ctx(), grants)

	return errs
}

// single is a grant of the strategy that is dealt with alone.
func (e *env) single(g strategies.Grant) single.Grant {
	return single.Grant{Grant: g, Strategy: e.Strategy}
}

// requests are n of new owners, each for a name of its own.
func (e *env) requests(n int) []strategies.Request {
	requests := make([]strategies.Request, n)
	for i := range requests {
		requests[i] = strategies.Request{
			Name: fmt.Sprintf("%s/%d \"\\{},ü", e.name, i), Owner: rand.Text(), Lease: lease,
			Holder: strategies.Holder{Host: "host", PID: i + 1, Label: `a "label" \, {x}`, Metadata: `{"a":"b\"c"}`},
		}
	}

	return requests
}

// acquireAll acquires all in one call and fails if it cannot. A session that broke may have the rows of a few locked for a
// moment longer: their calls are repeated, each alone, as a locker repeats them.
func (e *env) acquireAll(b batcher, requests []strategies.Request) []strategies.Grant {
	e.Helper()

	grants, errs := b.Acquire(e.ctx(), requests)
	for i, err := range errs {
		for deadline := time.Now().Add(e.patience); lockedForNow(err) && time.Now().Before(deadline); {
			e.elapse(10 * time.Millisecond)

			again, failed := b.Acquire(e.ctx(), requests[i:i+1])
			grants[i], err = again[0], failed[0]
		}

		if err != nil {
			e.Fatalf("Acquire() of %q = %v, want the grant", requests[i].Name, err)
		}
	}

	return grants
}

// lockedForNow says whether a name is not free, and nobody is known to have it.
func lockedForNow(err error) bool {
	var held *strategies.HeldError

	return errors.Is(err, strategies.ErrBusy) || errors.As(err, &held) && held.Token == 0 && held.Line == 0
}

func batchCases() []testCase {
	return []testCase{
		{name: "batch/each answer is its call's", run: func(e *env) {
			b := batchOnly(e)
			requests := e.requests(6)

			// 0 and 1 exist and are free, 2 is held, 3 to 5 were never seen.
			for _, r := range requests[:2] {
				e.release(e.acquireName(e.b, r.Name))
			}

			held := e.acquireName(e.b, requests[2].Name, sqllock.WithLabel("the holder"))
			grants, errs := b.Acquire(e.ctx(), requests)

			for i, r := range requests {
				if i == 2 {
					var refused *strategies.HeldError
					if !errors.As(errs[i], &refused) || refused.Name != r.Name || refused.Holder.Label != "the holder" || refused.Token != held.Token() {
						e.Errorf("the held name's answer = %v, want that the holder has it", errs[i])
					}

					continue
				}

				if errs[i] != nil || grants[i].None() {
					e.Fatalf("the answer for %q = %v, want the grant", r.Name, errs[i])
				}

				if err := e.single(grants[i]).Check(e.ctx()); err != nil {
					e.Errorf("Check() of %q = %v, want nil", r.Name, err)
				}

				if got := e.refusedName(e.b, r.Name); got.Holder != r.Holder || got.Token != grants[i].Token {
					e.Errorf("%q is held by %+v with token %d, want %+v and %d", r.Name, got.Holder, got.Token, r.Holder, grants[i].Token)
				}
			}
		}},
		{name: "batch/each has what it asked for", run: batchAsked},
		{name: "batch/each has its own place in line", skip: queuesOnly, run: batchInLine},
		{name: "batch/one name is granted once", run: func(e *env) {
			b := batchOnly(e)

			for range 5 {
				requests := e.requests(4)
				requests[1].Name, requests[2].Name = requests[0].Name, requests[0].Name

				grants, _ := b.Acquire(e.ctx(), requests)
				granted := 0

				for _, g := range grants[:3] {
					if !g.None() {
						granted++
					}
				}

				if granted > 1 {
					e.Fatalf("%d of three requests for one name were granted", granted)
				}

				for _, g := range grants {
					if g.None() {
						continue
					}

					e.releaseGrant(e.single(g))
				}
			}
		}},
		{name: "batch/tokens grow", run: func(e *env) {
			b := batchOnly(e)

			var last []int64

			for range 3 {
				grants := e.acquireAll(b, e.requests(5))

				for i, g := range grants {
					if last != nil && g.Token <= last[i] {
						e.Errorf("token %d of grant %d came after %d", g.Token, i, last[i])
					}
				}

				last = nil
				for _, g := range grants {
					last = append(last, g.Token)
				}

				for i, err := range b.release(grants) {
					if err != nil {
						e.Fatalf("Release() of grant %d = %v, want nil", i, err)
					}
				}
			}
		}},
		{name: "batch/the same owners ask again", run: func(e *env) {
			b := batchOnly(e)
			requests := e.requests(4)

			e.script.Fail("acquire-all", 1, After, nil)

			if _, errs := b.Acquire(e.ctx(), requests); errs[0] == nil || errors.Is(errs[0], sqllock.ErrNotAcquired) || errors.Is(errs[0], strategies.ErrNotBatched) {
				e.Fatalf("Acquire() whose answer was lost = %v, want that it is not known", errs[0])
			}

			first := e.acquireAll(b, requests)
			second := e.acquireAll(b, requests)

			for i := range first {
				if first[i].Token != second[i].Token {
					e.Errorf("asked twice, grant %d has tokens %d and %d, want one", i, first[i].Token, second[i].Token)
				}
			}

			alone, err := single.TryAcquire(e.ctx(), e.Strategy, requests[1])
			if err != nil || alone.Token != first[1].Token {
				e.Errorf("TryAcquire() of an owner that has it = %v, want the same grant", err)
			}
		}},
		// A guard of its own keeps the row from the second attempt. What the first brought ends too soon for the second.
		{name: "batch/the same owners ask again beside a guard", skip: both(leaseOnly, both(guardedOnly, oneWriter)), run: func(e *env) {
			b := batchOnly(e)
			requests := e.requests(3)

			const lease = 4 * time.Second
			for i := range requests {
				requests[i].Lease = lease
			}

			grants := e.acquireAll(b, requests)

			tx := e.begin("")
			if err := e.single(grants[1]).Guard(e.ctx(), tx.Tx); err != nil {
				e.Fatalf("Guard() = %v, want nil", err)
			}

			e.elapse(lease / 4)

			started := time.Now()
			again, errs := b.Acquire(e.ctx(), requests)

			for i, err := range errs {
				if err != nil {
					continue // it is not known, or has to go alone
				}

				status, _, err := e.Strategy.Status(e.ctx(), requests[i].Name)
				if ends := time.Since(started) + status.Remaining; err != nil || ends < lease-resolution {
					e.Errorf("asked again, grant %d (token %d) lasts for %s from then on, %v, want the lease of %s", i, again[i].Token, ends, err, lease)
				}
			}

			e.rollback(tx)
		}},
		// Not of a session, as in once/every statement twice: it gets a key again that it has, and has it after one release.
		// What repeats a statement there is a driver that takes another connection for it, and none does on one that is
		// checked out.
		{name: "batch/every statement twice", skip: leaseOnly, run: func(e *env) {
			b := batchOnly(e)
			requests := e.requests(3)

			e.script.Twice("*")

			grants := e.acquireAll(b, requests)

			for i, err := range b.Renew(e.ctx(), grants, lease) {
				if errors.Is(err, strategies.ErrNotBatched) {
					err = e.single(grants[i]).Renew(e.ctx(), lease)
				}

				if err != nil {
					e.Errorf("Renew() of grant %d = %v, want nil", i, err)
				}
			}

			// What the second finds is that the first has done it.
			for i, err := range b.release(grants) {
				if errors.Is(err, strategies.ErrNotBatched) {
					err = e.single(grants[i]).Release(e.ctx())
				}

				if err != nil {
					e.Errorf("Release() of grant %d = %v, want nil", i, err)
				}
			}

			for i, r := range requests {
				next := e.acquireName(e.b, r.Name)
				e.grow("a release", grants[i].Token, next.Token())
				e.release(next)
			}
		}},
		{name: "batch/rows without a commit are no answer", run: func(e *env) {
			b := batchOnly(e)
			if e.Faulty == nil {
				e.Skip("there is no database that rows come from")
			}

			requests := e.requests(3)
			for _, r := range requests {
				e.release(e.acquireName(e.b, r.Name))
			}

			e.Faulty.Undo("acquire-all")

			grants, errs := b.Acquire(e.ctx(), requests)

			for i, g := range grants {
				if errs[i] == nil && e.single(g).Check(e.ctx()) != nil {
					e.Errorf("Acquire() for request %d = a grant that there is not", i)
				}
			}

			grants = e.acquireAll(b, requests)

			e.Faulty.Undo("renew-all")

			errs = b.Renew(e.ctx(), grants, 3*lease)

			for i, r := range requests {
				switch {
				case errs[i] == nil: // where no rows come, nothing is undone
					if left := e.refusedName(e.b, r.Name).Remaining; left < 2*lease {
						e.Errorf("Renew() for %s of grant %d = nil, and %s are left", 3*lease, i, left)
					}
				case e.features.ConnectionHeld: // the session broke, and all of its locks have ended
					if err := e.single(grants[i]).Check(e.ctx()); !errors.Is(err, strategies.ErrLost) {
						e.Errorf("Renew() of grant %d = %v, and Check() = %v, want ErrLost", i, errs[i], err)
					}

					e.release(e.acquireName(e.b, r.Name))
				}
			}

			if e.features.ConnectionHeld && errs[0] != nil {
				grants = e.acquireAll(b, e.requests(3))
			}

			e.Faulty.Undo("release-all")

			errs = b.release(grants)

			for i, g := range grants {
				if errs[i] == nil && e.single(g).Check(e.ctx()) == nil {
					e.Errorf("Release() of grant %d = nil, and it is held", i)
				}
			}
		}},
		{name: "batch/renewal runs from now", run: func(e *env) {
			b := batchOnly(e)
			grants := e.acquireAll(b, e.requests(3))

			for i, err := range b.Renew(e.ctx(), grants, 3*lease) {
				if err != nil {
					e.Errorf("Renew() of grant %d = %v, want nil", i, err)
				}
			}

			for _, r := range e.requests(3) {
				if left := e.refusedName(e.b, r.Name).Remaining; left < 2*lease {
					e.Errorf("after the renewal for %s %q has %s left", 3*lease, r.Name, left)
				}
			}
		}},
		{name: "batch/a locked row delays nobody else", run: func(e *env) {
			b := batchOnly(e)

			switch {
			case e.harness.GuardBlocksRenewal:
				e.Skip("the database has one writer, so that a locked row stops all others")
			case e.LockRow == nil:
				e.Skip("rows cannot be locked")
			}

			requests := e.requests(3)
			grants := e.acquireAll(b, requests)
			unlock := e.LockRow(e.T, requests[1].Name)

			defer unlock()

			for _, c := range []struct {
				verb string
				errs func() []error
			}{
				{"Renew", func() []error { return b.Renew(e.ctx(), grants, lease) }},
				{"Release", func() []error { return b.release(grants) }},
			} {
				started := time.Now()
				errs := c.errs()

				if took := time.Since(started); e.late(took, e.harness.TryWithin) {
					e.Errorf("%s() beside a locked row took %s", c.verb, took)
				}

				// A database whose locks stop no other writer serves it.
				if errs[1] != nil && !errors.Is(errs[1], strategies.ErrNotBatched) {
					e.Errorf("%s() of the locked row's grant = %v, want ErrNotBatched", c.verb, errs[1])
				}

				// Sent alone they would come after a successor, who may have the name by then.
				for _, i := range []int{0, 2} {
					if errs[i] != nil {
						e.Errorf("%s() of grant %d beside a locked row = %v, want nil", c.verb, i, errs[i])
					}
				}
			}
		}},
		// Not of a session: its lock does not end with the lease in the row, so there is no successor while the session lives,
		// and one that has ended sends nothing.
		{name: "batch/never a successor's", skip: leaseOnly, run: func(e *env) {
			b := batchOnly(e)
			if e.Age == nil {
				e.Skip("leases cannot be aged")
			}

			requests := e.requests(3)
			grants := e.acquireAll(b, requests)
			e.Age(e.T, requests[1].Name, 2*lease)
			successor := e.acquireName(e.b, requests[1].Name)

			for verb, errs := range map[string][]error{
				"Renew": b.Renew(e.ctx(), grants, lease), "Release": b.release(grants),
			} {
				if !errors.Is(errs[1], strategies.ErrNotBatched) {
					e.Errorf("%s() of a grant that was taken over = %v, want ErrNotBatched", verb, errs[1])
				}

				if verb == "Release" && (errs[0] != nil || errs[2] != nil) {
					e.Errorf("Release() beside a grant that was taken over = %v and %v, want nil", errs[0], errs[2])
				}
			}

			e.alive(successor)

			if err := e.single(grants[1]).Release(e.ctx()); !errors.Is(err, sqllock.ErrLost) {
				e.Errorf("Release() of a grant that was taken over = %v, want ErrLost", err)
			}
		}},
		{name: "batch/many at a time", run: func(e *env) {
			batchOnly(e)

			const many = 48

			var (
				group  sync.WaitGroup
				tokens [many]int64
			)

			// They gather while the first statement is under way.
			_, resume := e.script.Pause(e.op("attempt"), Before)
			time.AfterFunc(50*time.Millisecond, resume)

			for i := range many {
				group.Go(func() {
					name := fmt.Sprintf("%s/%d", e.name, i)

					for range 4 {
						lock, err := e.a.Acquire(e.ctx(), name)
						if err != nil {
							e.Errorf("Acquire() = %v, want the lock", err)

							return
						}

						if lock.Token() <= tokens[i] {
							e.Errorf("token %d came after %d", lock.Token(), tokens[i])
						}

						tokens[i] = lock.Token()

						e.release(lock)
					}
				})
			}

			group.Wait()

			together := 0

			for _, statement := range e.script.Statements() {
				if strings.HasSuffix(statement, "-all") {
					together++
				}
			}

			if together == 0 {
				e.Errorf("of %d acquisitions at a time none went together with others", many)
			}
		}},
		{name: "batch/NoBatching", run: func(e *env) {
			batchOnly(e)

			var group sync.WaitGroup

			for i := range 16 {
				group.Go(func() {
					lock, err := e.a.Acquire(e.ctx(), fmt.Sprintf("%s/%d", e.name, i), sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
					if err != nil {
						e.Errorf("Acquire() = %v, want the lock", err)

						return
					}

					e.release(lock)
				})
			}

			group.Wait()

			for _, statement := range e.script.Statements() {
				if strings.HasSuffix(statement, "-all") {
					e.Fatalf("%s was sent without batching", statement)
				}
			}
		}},
	}
}

// What calls have in common is sent once, and a call that differs says in what, also if that is nothing: no label, for
// example.
func batchAsked(e *env) {
	b := batchOnly(e)
	last := make([]int64, 3)

	for _, different := range [][]int{nil, {0}, {1}, {0, 1, 2}, {2}} {
		requests := e.requests(len(last))
		for i := range requests {
			requests[i].Holder.PID = 1
		}

		for _, i := range different {
			r := &requests[i]
			r.Lease, r.Tokens = time.Duration(2+i)*lease, many
			r.Holder = strategies.Holder{Host: fmt.Sprint("another/", i), PID: i}

			if e.features.LockDelay {
				r.LockDelay = time.Duration(5+i) * lease
			}
		}

		grants := e.acquireAll(b, requests)

		for i, r := range requests {
			what := fmt.Sprintf("with %v different, %d", different, i)
			e.grow(what, last[i], grants[i].Token)

			status, err := e.b.Inspect(e.ctx(), r.Name)
			if err != nil || status.Holder != r.Holder || !lately(status.Remaining, r.Lease) {
				e.Errorf("%s: Inspect() = %+v, %v, want %+v and %s", what, status, err, r.Holder, r.Lease)
			}

			if held := e.refusedName(e.b, r.Name); !lately(held.Remaining, r.Lease+r.LockDelay) {
				e.Errorf("%s: it is taken for %s, want %s", what, held.Remaining, r.Lease+r.LockDelay)
			}

			last[i] = status.Token
		}

		for i, err := range b.release(grants) {
			if err != nil {
				e.Fatalf("Release() of grant %d = %v, want nil", i, err)
			}
		}
	}
}

// lately says whether a time was set a moment ago.
func lately(left, set time.Duration) bool { return left > set-lease/2 && left <= set+time.Second }

// Of several names that others wait for, those are granted whose callers are the first there.
func batchInLine(e *env) {
	b := batchOnly(e)

	for first := range 3 {
		requests := e.requests(3)

		for i, r := range requests {
			if first == 0 {
				e.release(e.acquireName(e.b, r.Name))

				waiter := e.someone()
				waiter.Name = r.Name
				e.enqueue(waiter, lease)
			}

			requests[i].First = i == first
		}

		var (
			grants []strategies.Grant
			errs   []error
		)

		// Whoever looks for idle names may have a row locked.
		e.poll("nobody else has the rows locked", func() error {
			grants, errs = b.Acquire(e.ctx(), requests)

			for _, err := range errs {
				if errors.Is(err, strategies.ErrNotBatched) {
					return err
				}
			}

			return nil
		})

		for i, err := range errs {
			if i == first {
				if err != nil {
					e.Fatalf("Acquire() for who is the first = %v, want the grant", err)
				}

				e.releaseGrant(e.single(grants[i]))
			} else if held := new(strategies.HeldError); !errors.As(err, &held) || held.Line == 0 {
				e.Errorf("Acquire() of grant %d while others wait for it = %v, want a HeldError with Line", i, err)
			}
		}
	}
}
