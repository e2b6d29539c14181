package sqllock_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// These examples keep locks in memory. A program takes a strategy on a
// database instead, such as cas.New(postgres.New(pool)).
func exampleLocker(options ...sqllock.LockerOption) (*sqllocktest.Memory, *sqllock.Locker) {
	memory := sqllocktest.NewMemory()

	locker, err := sqllock.New(memory, options...)
	if err != nil {
		log.Fatal(err)
	}

	return memory, locker
}

func ExampleNew() {
	ctx := context.Background()

	locker, err := sqllock.New(sqllocktest.NewMemory(), sqllock.WithLease(20*time.Second), sqllock.WithLabel("invoice worker 3"))
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = locker.Close(ctx) }()

	fmt.Println(locker.Features().Strategy)
	// Output: memory
}

func ExampleLocker_Acquire() {
	ctx := context.Background()
	_, locker := exampleLocker()

	lock, err := locker.Acquire(ctx, "invoices/2026-11", sqllock.WithMaxWait(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = lock.Release(ctx) }()

	fmt.Println("working on", lock.Name())
	// Output: working on invoices/2026-11
}

func ExampleLocker_TryAcquire() {
	ctx := context.Background()
	memory, here := exampleLocker()

	// Another process has the lock.
	elsewhere, _ := sqllock.New(memory.Peer())
	_, _ = elsewhere.Acquire(ctx, "nightly", sqllock.WithLabel("the other one"))

	_, err := here.TryAcquire(ctx, "nightly")

	var held *sqllock.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by", held.Holder.Label)
	}
	// Output: held by the other one
}

func ExampleLocker_Do() {
	ctx := context.Background()
	_, locker := exampleLocker()

	err := locker.Do(ctx, "customer/7", func(ctx context.Context, lock *sqllock.Lock) error {
		fmt.Println("working under", lock.Name())

		return context.Cause(ctx) // ErrLost when the lock is lost.
	})

	fmt.Println(err)
	// Output:
	// working under customer/7
	// <nil>
}

// An HTTP handler looks first at what was sent and committed, and at the error of Do afterwards.
func ExampleLocker_Do_handler() {
	ctx := context.Background()
	memory, locker := exampleLocker()

	handler := func(w http.ResponseWriter, r *http.Request) {
		sent, committed := false, false
		work := func(ctx context.Context, lock *sqllock.Lock) error {
			tx := memory.Begin()                 // pool.Begin(ctx); Guard takes postgres.Tx(tx)
			defer func() { _ = tx.Rollback() }() // does nothing after the commit

			if err := lock.Guard(ctx, tx); err != nil {
				return err
			}

			// Here the transaction reads and writes.

			if err := ctx.Err(); err != nil { // the lock is lost, or the request has ended
				return err
			}

			sent = true // from here on nobody knows, unless the commit succeeds
			err := tx.Commit()
			committed = err == nil

			return err
		}

		switch err := locker.Do(r.Context(), "account/7", work, sqllock.WithMaxWait(time.Second)); {
		case committed: // log an error: it is about the release or a loss
		case sent: // look for the token to find out
			w.WriteHeader(http.StatusInternalServerError)
		case r.Context().Err() != nil, errors.Is(err, sqllock.ErrLost), errors.Is(err, sqllock.ErrDeadlock), errors.Is(err, sqllock.ErrClosed):
			w.WriteHeader(http.StatusServiceUnavailable) // nothing was written
		case errors.Is(err, sqllock.ErrNotAcquired):
			w.WriteHeader(http.StatusConflict)
		case sqllock.Retryable(err), away(err):
			w.WriteHeader(http.StatusServiceUnavailable) // nothing was written
		default: // a mistake; nothing was written
			w.WriteHeader(http.StatusInternalServerError)
		}
	}

	w := httptest.NewRecorder()
	handler(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody))
	fmt.Println(w.Code)
	// Output: 200
}

// away says whether the connection broke or the server is away. A driver has errors of its own, too: mysql.ErrInvalidConn, or
// with pgx and lib/pq the SQLSTATEs of classes 08 and 57P.
func away(err error) bool {
	var (
		network net.Error
		release *sqllock.ReleaseError
	)

	return errors.As(err, &network) || errors.As(err, &release) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, driver.ErrBadConn)
}

func ExampleLocker_TryDo() {
	ctx := context.Background()
	_, locker := exampleLocker()

	job := func(context.Context, *sqllock.Lock) error {
		fmt.Println("the job runs")

		return nil
	}

	for range 2 {
		// With WithMinHold the name stays taken after a short job, so that
		// machines whose clocks differ run it once.
		err := locker.TryDo(ctx, "nightly", job, sqllock.WithMinHold(time.Minute))
		if errors.Is(err, sqllock.ErrNotAcquired) {
			fmt.Println("another has run it")
		}
	}
	// Output:
	// the job runs
	// another has run it
}

func ExampleLocker_Holders() {
	ctx := context.Background()
	_, locker := exampleLocker()

	for _, name := range []string{"customer/2", "customer/1", "nightly"} {
		_, _ = locker.Acquire(ctx, name)
	}

	held, err := locker.Holders(ctx, sqllock.Filter{Prefix: "customer/"})
	if err != nil {
		log.Fatal(err)
	}

	for _, lock := range held {
		fmt.Println(lock.Name, lock.Remaining > 0)
	}
	// Output:
	// customer/1 true
	// customer/2 true
}

func ExampleLocker_Waiters() {
	ctx := context.Background()
	memory, here := exampleLocker()

	held, err := here.Acquire(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = held.Release(ctx) }()

	// Another process waits.
	there, err := sqllock.New(memory.Peer(), sqllock.WithLabel("worker 2"))
	if err != nil {
		log.Fatal(err)
	}

	defer func() { _ = there.Close(ctx) }()

	go func() { _, _ = there.Acquire(ctx, "report") }()

	for waiters := []sqllock.Waiter(nil); len(waiters) == 0; time.Sleep(time.Millisecond) {
		if waiters, err = here.Waiters(ctx, sqllock.WaiterFilter{Name: "report"}); err != nil {
			log.Fatal(err)
		}

		for place, w := range waiters {
			fmt.Printf("%d. %s waits for %s\n", place+1, w.Holder.Label, w.Name)
		}
	}
	// Output: 1. worker 2 waits for report
}

func ExampleLocker_Inspect() {
	ctx := context.Background()
	_, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "nightly",
		sqllock.WithLabel("cron"), sqllock.WithMetadata(map[string]string{"build": "1.2.3"}))

	status, _ := locker.Inspect(ctx, "nightly")
	fmt.Println(status.Held(), status.Holder.Label, status.Holder.Metadata)

	_ = lock.Release(ctx)

	status, _ = locker.Inspect(ctx, "nightly")
	fmt.Println(status.Held(), status.Holder.Label)
	// Output:
	// true cron {"build":"1.2.3"}
	// false cron
}

func ExampleSlotName() {
	ctx := context.Background()
	_, locker := exampleLocker()

	err := locker.Do(ctx, "export", func(ctx context.Context, lock *sqllock.Lock) error {
		status, err := locker.Inspect(ctx, sqllock.SlotName("export", lock.Slot()))
		fmt.Println(status.Name, status.Held())

		return err
	}, sqllock.WithPermits(4))
	if err != nil {
		log.Fatal(err)
	}
	// Output: export true
}

func ExampleLocker_Ready() {
	ctx := context.Background()
	_, locker := exampleLocker()

	// A Kubernetes readinessProbe asks for it: httpGet: {path: /readyz, port: 8080}, with timeoutSeconds: 5.
	ready := func(w http.ResponseWriter, r *http.Request) {
		if err := locker.Ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}

	probe := func() {
		w := httptest.NewRecorder()
		ready(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
		fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Body)))
	}

	probe()

	_ = locker.Close(ctx)

	probe()
	// Output:
	// 200
	// 503 look whether the database is ready: locker closed
}

// Who had it last, and why that ended.
func ExampleStatus() {
	ctx := context.Background()
	_, locker := exampleLocker(sqllock.WithLabel("report"))

	_, _ = locker.Acquire(ctx, "nightly")

	if err := sqllocktest.ForceRelease(ctx, locker, "nightly", "the node is gone"); err != nil {
		panic(err)
	}

	status, err := locker.Inspect(ctx, "nightly")
	if err != nil {
		panic(err)
	}

	fmt.Printf("%s had it, %s: %s\n", status.Holder.Label, status.Ended, status.Detail)
	// Output: report had it, forced: the node is gone
}

func ExampleLocker_ForceRelease() {
	ctx := context.Background()
	_, locker := exampleLocker(sqllock.WithLabel("worker"))

	lock, _ := locker.Acquire(ctx, "nightly")

	seen, err := locker.Inspect(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}

	// Be sure that it is gone. If somebody else has the lock by now, this changes nothing.
	fmt.Println("held by", seen.Holder.Label)

	if err := locker.ForceRelease(ctx, seen, "the node is gone"); err != nil {
		log.Fatal(err)
	}

	var lost *sqllock.LostError
	if errors.As(lock.Check(ctx), &lost) {
		fmt.Println(lost.Reason, "-", lost.Detail)
	}
	// Output:
	// held by worker
	// forced - the node is gone
}

func ExampleLocker_Reap() {
	ctx := context.Background()
	memory, locker := exampleLocker()

	_, _ = locker.Acquire(ctx, "nightly")

	memory.Age("nightly", time.Hour) // Its holder died an hour ago.

	reaped, err := locker.Reap(ctx, 7*24*time.Hour)
	fmt.Println(reaped.Expired, reaped.Removed, err)
	// Output: 1 0 <nil>
}

func ExampleLocker_RunReaper() {
	_, locker := exampleLocker()

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)

	go func() { ended <- locker.RunReaper(ctx, time.Minute, 30*24*time.Hour) }()

	cancel()
	fmt.Println(<-ended)
	// Output: <nil>
}

func ExampleLocker_Close() {
	ctx := context.Background()
	_, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "nightly")

	fmt.Println(locker.Close(ctx))
	fmt.Println(lock.Err())

	_, err := locker.Acquire(ctx, "nightly")
	fmt.Println(errors.Is(err, sqllock.ErrClosed))
	// Output:
	// <nil>
	// lock already released: locker closed
	// true
}

func ExampleLock_Guard() {
	ctx := context.Background()
	memory, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "invoices/2026-11")

	memory.Lose("invoices/2026-11") // While we were paused, another took over.

	tx := memory.Begin() // postgres.Tx(tx) around a transaction of your own

	if err := lock.Guard(ctx, tx); errors.Is(err, sqllock.ErrLost) {
		fmt.Println("rolled back:", tx.Rollback())

		return
	}

	fmt.Println("committed:", tx.Commit())
	// Output: rolled back: <nil>
}

func ExampleLock_Check() {
	ctx := context.Background()
	_, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "nightly")

	fmt.Println(lock.Check(ctx)) // asks the database
	fmt.Println(lock.Err())      // asks the clocks
	// Output:
	// <nil>
	// <nil>
}

func ExampleLock_Extend() {
	ctx := context.Background()
	_, locker := exampleLocker(sqllock.WithoutRenewal())

	lock, _ := locker.Acquire(ctx, "nightly")

	if err := lock.Extend(ctx, 10*time.Minute); err != nil {
		log.Fatal(err)
	}

	fmt.Println(lock.Remaining() > 9*time.Minute)
	// Output: true
}

func ExampleLock_Release() {
	ctx, cancel := context.WithCancel(context.Background())
	_, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "nightly")

	cancel()

	fmt.Println(lock.Release(ctx)) // It works though ctx has ended,
	fmt.Println(lock.Release(ctx)) // and a second time.
	// Output:
	// <nil>
	// <nil>
}

func ExampleLock_ReleaseTx() {
	ctx := context.Background()
	memory, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "invoices/2026-11")
	tx := memory.Begin() // postgres.Tx(tx) around a transaction of your own

	if err := lock.ReleaseTx(ctx, tx); err != nil {
		log.Fatal(err)
	}

	// The next holder gets the lock with the commit, not before.
	fmt.Println(tx.Commit())
	fmt.Println(lock.Release(ctx))
	// Output:
	// <nil>
	// <nil>
}

func ExampleLock_Mark() {
	ctx := context.Background()
	_, locker := exampleLocker()

	for _, version := range []int64{3, 4, 4} {
		lock, _ := locker.Acquire(ctx, "catalog")

		if status, _ := locker.Inspect(ctx, "catalog"); status.Mark < version {
			fmt.Println("import version", version)

			if err := lock.Mark(ctx, version); err != nil {
				log.Fatal(err)
			}
		}

		_ = lock.Release(ctx)
	}
	// Output:
	// import version 3
	// import version 4
}

func ExampleLock_MarkTx() {
	ctx := context.Background()
	memory, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "catalog")
	tx := memory.Begin() // postgres.Tx(tx) around a transaction of your own

	if err := lock.MarkTx(ctx, tx, 4); err != nil { // the last statement
		log.Fatal(err)
	}

	fmt.Println(tx.Commit())
	fmt.Println(lock.Release(ctx))

	status, _ := locker.Inspect(ctx, "catalog")
	fmt.Println(status.Mark)
	// Output:
	// <nil>
	// <nil>
	// 4
}

func ExampleLock_Remaining() {
	_, locker := exampleLocker(sqllock.WithLease(time.Minute))

	lock, _ := locker.Acquire(context.Background(), "nightly")

	if lock.Remaining() > 30*time.Second {
		fmt.Println("time enough for one more")
	}
	// Output: time enough for one more
}

func ExampleLock_Token() {
	ctx := context.Background()
	_, locker := exampleLocker()

	first, _ := locker.Acquire(ctx, "nightly")
	_ = first.Release(ctx)
	second, _ := locker.Acquire(ctx, "nightly")

	fmt.Println(second.Token() > first.Token())
	// Output: true
}

func ExampleLock_Context() {
	ctx := context.Background()
	_, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "nightly", sqllock.WithMaxHold(10*time.Millisecond))

	<-lock.Done()
	fmt.Println(errors.Is(context.Cause(lock.Context()), sqllock.ErrLost))
	// Output: true
}

func ExampleWithMaxWait() {
	ctx := context.Background()
	memory, locker := exampleLocker(sqllock.WithMaxWait(50 * time.Millisecond))

	elsewhere, _ := sqllock.New(memory.Peer())
	_, _ = elsewhere.Acquire(ctx, "nightly")

	_, err := locker.Acquire(ctx, "nightly")
	fmt.Println(errors.Is(err, sqllock.ErrNotAcquired))
	// Output: true
}

func ExampleWithNames() {
	ctx := context.Background()
	_, locker := exampleLocker()

	err := locker.Do(ctx, "account/7", func(_ context.Context, lock *sqllock.Lock) error {
		fmt.Println("holding", lock.Names())

		return nil
	}, sqllock.WithNames("account/42"))
	if err != nil {
		log.Fatal(err)
	}
	// Output: holding [account/42 account/7]
}

func ExampleWithReentrant() {
	ctx := context.Background()
	_, locker := exampleLocker(sqllock.WithReentrant())

	inner := func(_ context.Context, lock *sqllock.Lock) error {
		fmt.Println("inside, under", lock.Name())

		return nil
	}

	err := locker.Do(ctx, "customer/7", func(ctx context.Context, _ *sqllock.Lock) error {
		return locker.Do(ctx, "customer/7", inner) // ctx carries the lock
	})

	fmt.Println(err)
	// Output:
	// inside, under customer/7
	// <nil>
}

func ExampleRetryable() {
	ctx := context.Background()
	memory, locker := exampleLocker()

	lock, _ := locker.Acquire(ctx, "nightly")

	other, _ := sqllock.New(memory.Peer())
	_, held := other.TryAcquire(ctx, "nightly")
	_, wrong := other.TryAcquire(ctx, "nightly", sqllock.WithLease(0))

	fmt.Println(sqllock.Retryable(held), sqllock.Retryable(wrong), sqllock.Retryable(lock.Release(ctx)))
	// Output: true false false
}

func ExampleWithObserver() {
	ctx := context.Background()
	_, locker := exampleLocker(sqllock.WithObserver(func(_ context.Context, e sqllock.Event) {
		if e.Kind == sqllock.Acquired {
			fmt.Println("acquired", e.Name, "at attempt", e.Attempts)
		}

		if e.Kind == sqllock.Released {
			fmt.Println("released", e.Name, e.Err)
		}
	}))

	lock, _ := locker.Acquire(ctx, "nightly")
	_ = lock.Release(ctx)
	// Output:
	// acquired nightly at attempt 1
	// released nightly <nil>
}

func ExampleWithMinHold() {
	ctx := context.Background()
	_, locker := exampleLocker(sqllock.WithMinHold(time.Minute))

	lock, _ := locker.Acquire(ctx, "nightly")
	_ = lock.Release(ctx)

	_, err := locker.TryAcquire(ctx, "nightly")
	fmt.Println(errors.Is(err, sqllock.ErrNotAcquired))
	// Output: true
}

// Each of two processes holds a lock and wants the one that the other has. It passes the
// context of the lock that it holds.
func ExampleDeadlockError() {
	ctx := context.Background()
	memory, first := exampleLocker(sqllock.WithLabel("first"))

	second, err := sqllock.New(memory.Peer(), sqllock.WithLabel("second"))
	if err != nil {
		log.Fatal(err)
	}

	a, err := first.Acquire(ctx, "a")
	if err != nil {
		log.Fatal(err)
	}

	b, err := second.Acquire(ctx, "b")
	if err != nil {
		log.Fatal(err)
	}

	both := make(chan error, 2)

	go func() {
		_, err := first.Acquire(a.Context(), "b")
		both <- errors.Join(err, a.Release(ctx))
	}()
	go func() {
		_, err := second.Acquire(b.Context(), "a")
		both <- errors.Join(err, b.Release(ctx))
	}()

	for range 2 {
		deadlock := new(sqllock.DeadlockError)
		if errors.As(<-both, &deadlock) {
			fmt.Println("one of them gives up, of", len(deadlock.Cycle))
		}
	}
	// Output: one of them gives up, of 2
}

func ExampleHeldError() {
	err := error(&sqllock.HeldError{
		Name:      "nightly",
		Holder:    sqllock.Holder{Host: "node-3", PID: 4711, Label: "cron"},
		Remaining: 12 * time.Second,
	})

	fmt.Println(err)
	fmt.Println(errors.Is(err, sqllock.ErrNotAcquired))
	// Output:
	// lock "nightly" is held by cron (node-3, pid 4711), lease ends in 12s unless renewed
	// true
}

func ExampleLostError() {
	ctx := context.Background()
	memory, locker := exampleLocker()

	err := locker.Do(ctx, "nightly", func(ctx context.Context, lock *sqllock.Lock) error {
		memory.Lose("nightly") // another process takes over

		return lock.Check(ctx)
	})

	var lost *sqllock.LostError
	if errors.As(err, &lost) {
		fmt.Println(lost.Name, "was lost:", lost.Reason)
	}
	// Output: nightly was lost: taken over
}

// once starts a job that has to run alone: nobody can give it an option with which its lock has several holders.
func ExampleLockOptions() {
	_, locker := exampleLocker()

	once := func(ctx context.Context, options ...sqllock.Option) error {
		return locker.Do(ctx, "job", func(context.Context, *sqllock.Lock) error {
			fmt.Println("alone")

			return nil
		}, sqllock.LockOptions(options...)...)
	}

	fmt.Println(once(context.Background(), sqllock.WithLease(time.Minute)))
	// Output:
	// alone
	// <nil>
}
