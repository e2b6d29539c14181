package sqllocktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// Harness says to Run how to make a strategy and its database.
type Harness struct {
	// New makes what one case needs. It is called once for each case, and
	// registers its own clean-up with t.
	New func(t *testing.T) Fixture
	// Isolations are the levels that Fixture.Begin knows beside the default:
	// "read committed", "repeatable read", "serializable".
	Isolations []string
	// GuardBlocksRenewal: the database has one writer (SQLite), so that an open
	// guard stops renewals and releases.
	GuardBlocksRenewal bool
	// GuardBlocksGuard: a transaction that guards a lock waits for another that guards the same, because the
	// database has no shared row locks (TiDB).
	GuardBlocksGuard bool
	// Statements names the statement that decides an operation ("acquire",
	// "renew", "check", "release"), where it is not called "strategy.operation",
	// and that of every "attempt", where it is not that of "acquire".
	Statements map[string]string
	// TryWithin is how soon a TryAcquire has to return beside somebody else's
	// open transaction. Zero is 2 s.
	TryWithin time.Duration
	// Patience bounds what has to happen sooner or later. Zero is 15 s.
	Patience time.Duration
	// Plain: the lockers neither batch, nor hand locks on, nor listen. Cases
	// about these are left out.
	Plain bool
	// Only leaves out the cases for whose name it returns false; nil leaves out none. It is for what other runs of the
	// same suite cover.
	Only func(name string) bool
	// Rivals: there are other strategies on the same database, which exclude this
	// one. Without it the cases about them are left out.
	Rivals bool
}

// Fixture is what a case works with. The functions may be nil where they can
// not apply to the strategy's features; the case is skipped then. Where they
// apply and are nil, the case fails.
type Fixture struct {
	// Strategy is tested. Other is a second one on the same database, with a
	// pool of its own, as another process has it.
	Strategy, Other strategies.Strategy
	// Faulty is the database beneath Strategy, and OtherFaulty that beneath
	// Other; nil if there is no database.
	Faulty, OtherFaulty *Faulty
	// Script is that of Strategy where it is not Faulty's.
	Script *Script
	// Begin opens a caller's transaction with the isolation level ("" is the
	// default), and reads something in it, so that it has its snapshot.
	Begin func(t *testing.T, isolation string) Transaction
	// Age lets the lease of the name's grant end so much sooner, by an update
	// of its row.
	Age func(t *testing.T, name string, d time.Duration)
	// AgeReaders does so with the leases of the name's readers alone; nil if there is no such thing.
	AgeReaders func(t *testing.T, name string, d time.Duration)
	// EndSession ends the database session that holds the lock.
	EndSession func(t *testing.T, name string)
	// RemoveRow deletes all rows of the name.
	RemoveRow func(t *testing.T, name string)
	// LockRow opens a transaction that locks the name's row against every
	// other writer, as any other program may do. unlock ends it.
	LockRow func(t *testing.T, name string) (unlock func())
	// LockNew opens a transaction that makes the rows of a name that has none, as a
	// first acquisition does. unlock rolls it back.
	LockNew func(t *testing.T, name string) (unlock func())
	// LockLeft does so with what the strategy keeps of a name beside its record, and a
	// dead holder leaves; nil if there is nothing.
	LockLeft func(t *testing.T, name string) (unlock func())
	// Rivals makes the other strategies on the same database, each with a pool of
	// its own.
	Rivals func(t *testing.T) []strategies.Strategy
}

// Transaction is a caller's transaction.
type Transaction struct {
	Tx       strategies.Tx
	Commit   func() error
	Rollback func() error
}

// Run tests that a strategy keeps what package sqllock promises. The cases run
// in parallel as far as they can and use names of their own, so they may share
// a database; but no other program may reap it meanwhile.
func Run(t *testing.T, h Harness) {
	t.Helper()

	if h.New == nil {
		t.Fatal("Harness.New is nil")
	}

	if h.TryWithin == 0 {
		h.TryWithin = 2 * time.Second
	}

	if h.Patience == 0 {
		h.Patience = defaultPatience
	}

	if h.Only == nil {
		h.Only = func(string) bool { return true }
	}

	// A group of their own, so that the cases of the reaper begin when all
	// others have ended: it reaps what those made to look old.
	t.Run("locks", func(t *testing.T) {
		for _, c := range cases(h.Plain) {
			if !h.Only(c.name) {
				continue
			}

			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				run(t, h, c)
			})
		}
	})

	for _, c := range reaperCases() {
		if name := reaperPrefix + c.name; h.Only(name) {
			t.Run(name, func(t *testing.T) { run(t, h, c) })
		}
	}
}

// Cases are the names of all cases of Run, for Harness.Only.
func Cases() []string {
	var names []string

	for _, c := range cases(false) {
		names = append(names, c.name)
	}

	for _, c := range reaperCases() {
		names = append(names, reaperPrefix+c.name)
	}

	return names
}

const reaperPrefix = "reaper/"

// testCase is one promise. skip returns why it does not concern a strategy.
type testCase struct {
	name string
	skip func(e *env) string
	run  func(e *env)
}

func cases(plain bool) []testCase {
	all := slices.Concat(
		exclusionCases(), tokenCases(), leaseCases(), ownerCases(), ambiguityCases(), nameCases(), tryCases(),
		waitingCases(), waiterCases(), lineCases(), permitCases(), sharedCases(), severalCases(), detachCases(), noteCases(), raiseCases(), idleCases(), guardCases(), administrationCases(), callCases(), closeCases(), sessionCases(), rivalCases(),
	)
	if plain {
		return all
	}

	return slices.Concat(all, notificationCases(), batchCases(), handOffCases())
}

func run(t *testing.T, h Harness, c testCase) {
	fixture := h.New(t)
	features := fixture.Strategy.Features()

	script := fixture.Script
	if script == nil && fixture.Faulty != nil {
		script = fixture.Faulty.Script
	}

	if script == nil {
		t.Fatal("Fixture has neither Faulty nor Script")
	}

	e := &env{
		T: t, Fixture: fixture, harness: h, features: features, script: script, name: caseName(),
		patience: h.Patience,
	}
	t.Cleanup(e.finish)

	if c.skip != nil {
		if reason := c.skip(e); reason != "" {
			t.Skip(reason)
		}
	}

	e.a, e.b = e.locker(fixture.Strategy), e.locker(fixture.Other)
	c.run(e)
}

// caseName is of a kind that character sets and quotes tell apart.
func caseName() string { return `suite/é你'\" ` + rand.Text() }

// Reasons to skip.

func leaseOnly(e *env) string {
	if e.features.ConnectionHeld {
		return "a connection-held lock ends with its session, not with the lease in its row"
	}

	return ""
}

func connectionHeldOnly(e *env) string {
	if !e.features.ConnectionHeld {
		return "the lock is not held by a session"
	}

	return ""
}

// guardedOnly leaves out strategies whose locks cannot be used in transactions, as the case of the features shows.
func guardedOnly(e *env) string {
	if !e.guards() {
		return "the strategy is no Guarder"
	}

	return ""
}

// releaseTxOnly leaves out those, too, whose locks are a session's, which does not end with a transaction.
func releaseTxOnly(e *env) string {
	if e.features.ConnectionHeld {
		return "the strategy has no ReleaseTx"
	}

	return guardedOnly(e)
}

func (e *env) guards() bool {
	_, guards := e.Strategy.(strategies.Guarder)

	return guards
}

func both(first, second func(*env) string) func(*env) string {
	return func(e *env) string {
		if reason := first(e); reason != "" {
			return reason
		}

		return second(e)
	}
}

const (
	// defaultPatience is Harness.Patience if that is zero.
	defaultPatience = 15 * time.Second
	// lease is that of locks whose end no case waits for: longer than any patience,
	// so that what happens within that was not brought about by its end.
	lease = time.Minute

	// resolution is that of the coarsest clock, SQLite's, by which a lease there is longer.
	resolution = time.Millisecond
)

// env is what a case has.
type env struct {
	*testing.T
	Fixture

	harness  Harness
	features strategies.Features
	script   *Script
	name     string
	a, b     *sqllock.Locker // on Strategy and on Other
	lockers  []*sqllock.Locker
	held     []single.Grant // from the strategy itself, and of a session
	patience time.Duration
}

// locker returns one more locker on a strategy.
func (e *env) locker(s strategies.Strategy) *sqllock.Locker {
	e.Helper()

	options := []sqllock.LockerOption{sqllock.WithLease(lease), sqllock.WithTuning(sqllock.Tuning{PollMin: 5 * time.Millisecond, PollMax: 50 * time.Millisecond})}
	if e.harness.Plain {
		options = append(options, sqllock.WithTuning(sqllock.Tuning{NoBatching: true, NoHandOff: true, NoNotifications: true}))
	}

	l, err := sqllock.New(s, options...)
	if err != nil {
		e.Fatalf("New(...) = %v", err)
	}

	e.lockers = append(e.lockers, l)

	return l
}

// finish ends all that a case left, and then no connection may be missing.
func (e *env) finish() {
	e.script.Reset()

	// After an answer that was lost Close looks for some seconds for what it may bring.
	const closes = 20 * time.Second

	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), closes)
	defer cancel()

	for _, l := range e.lockers {
		if err := l.Close(ctx); ctx.Err() != nil {
			e.Errorf("Close() did not end within %s: %v", closes, err)
		}
	}

	// Of those that the case has from the strategy itself, some have ended.
	for _, g := range e.held {
		_ = g.Release(ctx)
	}

	e.Strategy.Close(ctx)

	for _, f := range []*Faulty{e.Faulty, e.OtherFaulty} {
		if f == nil {
			continue
		}

		e.poll("no connection is checked out at the end", func() error {
			if n := f.Leaks(); n != 0 {
				return fmt.Errorf("Leaks() = %d, want 0; statements: %v", n, f.Statements())
			}

			return nil
		})

		for _, misuse := range f.Misuse() {
			e.Errorf("connection misused: %s", misuse)
		}
	}
}

// ctx bounds what has to happen.
func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(e.Context(), e.patience)
	e.Cleanup(cancel)

	return ctx
}

// op is the statement that decides an operation.
func (e *env) op(operation string) string {
	if name, ok := e.harness.Statements[operation]; ok {
		return name
	}

	if operation == "attempt" {
		return e.op("acquire")
	}

	return operation
}

// poll waits until f returns nil.
func (e *env) poll(what string, f func() error) {
	e.Helper()

	deadline := time.Now().Add(e.patience)
	tick := time.NewTicker(5 * time.Millisecond)

	defer tick.Stop()

	for {
		err := f()
		if err == nil {
			return
		}

		if time.Now().After(deadline) {
			e.Errorf("not within %s: %s: %v%s", e.patience, what, err, e.holder(e.name))

			return
		}

		<-tick.C
	}
}

// late says that something took longer than it should: than most, and than that on a machine which is so slow now that calls which do
// nothing but ask take long, too.
func (e *env) late(took, most time.Duration) bool {
	const (
		calls = 10
		each  = 10 // that what is bounded may take for each of them
	)

	if took <= most {
		return false
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), e.patience)
	defer cancel()

	started := time.Now()

	for range calls {
		_, _, _ = e.Other.Status(ctx, e.name)
	}

	return took > each*time.Since(started)
}

// brief is a lease of d, or one that some grants fit into where they take long: a lease that ends before its grant is told shows nothing.
func (e *env) brief(d time.Duration) time.Duration {
	e.Helper()

	const grants = 30

	var took time.Duration

	// The first one may have to connect.
	for range 2 {
		started := time.Now()

		e.release(e.acquireName(e.a, e.name+"/brief"))

		took = time.Since(started)
	}

	return max(d, grants*took)
}

// elapse lets real time pass, where its passing is what is tested.
func (e *env) elapse(d time.Duration) { <-time.After(d) }

// holder says who holds the name, for the message of a failure.
func (e *env) holder(name string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), 2*time.Second)
	defer cancel()

	status, _, err := e.Other.Status(ctx, name)
	if err != nil || status.Remaining == 0 {
		return fmt.Sprintf(" (nobody holds %q: %v)", name, err)
	}

	return fmt.Sprintf(" (%q is held by %s, token %d, for %s, %s left)",
		name, status.Holder, status.Token, status.HeldFor, status.Remaining)
}

// acquire acquires the case's name and fails if it cannot.
func (e *env) acquire(l *sqllock.Locker, options ...sqllock.LockOption) *sqllock.Lock {
	e.Helper()

	return e.acquireName(l, e.name, options...)
}

func (e *env) acquireName(l *sqllock.Locker, name string, options ...sqllock.LockOption) *sqllock.Lock {
	e.Helper()

	lock, err := l.Acquire(e.ctx(), name, options...)
	if err != nil {
		e.Fatalf("Acquire(%q) = %v, want the lock%s", name, err, e.holder(name))
	}

	return lock
}

// refused fails unless the name is held, and returns what is said of it.
func (e *env) refused(l *sqllock.Locker) *sqllock.HeldError {
	e.Helper()

	return e.refusedName(l, e.name)
}

func (e *env) refusedName(l *sqllock.Locker, name string) *sqllock.HeldError {
	e.Helper()

	started := time.Now()
	lock, err := l.TryAcquire(e.ctx(), name)

	if took := time.Since(started); e.late(took, e.harness.TryWithin) {
		e.Errorf("TryAcquire(%q) returned after %s, want at most %s", name, took, e.harness.TryWithin)
	}

	var held *sqllock.HeldError

	switch {
	case err == nil:
		e.Fatalf("TryAcquire(%q) = a lock with token %d, want ErrNotAcquired", name, lock.Token())
	case !errors.As(err, &held) || !errors.Is(err, sqllock.ErrNotAcquired):
		e.Fatalf("TryAcquire(%q) = %v, want a *HeldError", name, err)
	case held.Name != name:
		e.Errorf("TryAcquire(%q): HeldError.Name = %q", name, held.Name)
	}

	return held
}

// refusedUnheld fails unless the name cannot be had though nobody is known to hold it: a
// transaction has its row locked. A job that is skipped when somebody holds it must not
// be skipped then.
func (e *env) refusedUnheld(l *sqllock.Locker) error {
	e.Helper()

	var err error

	e.within(e.harness.TryWithin, "TryAcquire() beside a row lock", func() {
		_, err = l.TryAcquire(e.ctx(), e.name)
		if !errors.Is(err, sqllock.ErrUnreachable) || errors.Is(err, sqllock.ErrNotAcquired) {
			e.Fatalf("TryAcquire() beside a row lock = %v, want ErrUnreachable, and not ErrNotAcquired", err)
		}
	})

	return err
}

// release releases a lock that must still be ours.
func (e *env) release(lock *sqllock.Lock) {
	e.Helper()

	if err := lock.Release(e.ctx()); err != nil {
		e.Errorf("Release() = %v, want nil%s", err, e.holder(lock.Name()))
	}
}

// alive fails unless the database says that the lock is ours.
func (e *env) alive(lock *sqllock.Lock) {
	e.Helper()

	if err := lock.Check(e.ctx()); err != nil {
		e.Errorf("Check() of token %d = %v, want nil%s", lock.Token(), err, e.holder(lock.Name()))
	}
}

// ended waits until the context of a lock has ended because of something.
func (e *env) ended(lock *sqllock.Lock, because string) {
	e.Helper()

	select {
	case <-lock.Done():
	case <-time.After(e.patience):
		e.Fatalf("the context did not end within %s %s", e.patience, because)
	}
}

// lost fails unless err is a *LostError with one of the reasons.
func (e *env) lost(what string, err error, reasons ...sqllock.Reason) *sqllock.LostError {
	e.Helper()

	var lost *sqllock.LostError
	if !errors.As(err, &lost) || !errors.Is(err, sqllock.ErrLost) {
		e.Fatalf("%s = %v, want a *LostError%s", what, err, e.holder(e.name))
	}

	for _, reason := range reasons {
		if lost.Reason == reason {
			return lost
		}
	}

	if len(reasons) > 0 {
		e.Errorf("%s = %v: Reason = %q, want one of %q", what, err, lost.Reason, reasons)
	}

	return lost
}

// age makes the lease of the case's name end sooner.
func (e *env) age(d time.Duration) {
	e.Helper()

	if e.Age == nil {
		e.Fatal("Fixture.Age is nil, and the strategy's locks are leases")
	}

	e.Age(e.T, e.name, d)
}

// request is one for the strategy itself, without the core.
func (e *env) request() strategies.Request {
	return strategies.Request{
		Name: e.name, Owner: rand.Text(), Lease: lease, Holder: strategies.Holder{Host: "suite", PID: 1, Label: "grant"}, First: true,
	}
}

// releaseGrant releases a grant that is still there.
func (e *env) releaseGrant(grant single.Grant) {
	e.Helper()

	if err := done(grant.Release(e.ctx())); err != nil {
		e.Errorf("Release() = %v, want nil", err)
	}
}

// done is what a strategy says of a renewal or a release, as the core takes it: it was done though a server of several was late.
func done(err error) error {
	if partial := new(strategies.PartialError); errors.As(err, &partial) {
		return nil
	}

	return err
}

// grant acquires with the strategy itself.
func (e *env) grant(s strategies.Strategy, r strategies.Request) single.Grant {
	e.Helper()

	var grant single.Grant

	e.poll("the strategy grants "+r.Name, func() error {
		g, err := single.TryAcquire(e.ctx(), s, r)
		if err != nil && !errors.Is(err, sqllock.ErrNotAcquired) {
			e.Fatalf("TryAcquire(%q) of the strategy = %v", r.Name, err)
		}

		grant = g

		return err
	})

	if grant.None() {
		e.FailNow()
	}

	// A grant that a case leaves behind holds a connection in some strategies.
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), e.patience)
		defer cancel()

		_ = grant.Release(ctx)
	})

	return grant
}

// within runs f and fails if it takes longer than d.
func (e *env) within(d time.Duration, what string, f func()) {
	e.Helper()

	started := time.Now()

	f()

	if took := time.Since(started); e.late(took, d) {
		e.Errorf("%s took %s, want at most %s", what, took, d)
	}
}

// waiting runs Acquire in the background. The channel gives its lock, or
// nothing if it failed, which fails the case. That waits for it, also if it ends early.
func (e *env) waiting(l *sqllock.Locker, options ...sqllock.LockOption) <-chan *sqllock.Lock {
	locks, done := make(chan *sqllock.Lock, 1), make(chan struct{})
	ctx := e.ctx()

	e.Cleanup(func() { <-done })

	go func() {
		defer close(done)
		defer close(locks)

		lock, err := l.Acquire(ctx, e.name, options...)
		if err != nil {
			e.Errorf("Acquire(%q) = %v, want the lock%s", e.name, err, e.holder(e.name))

			return
		}

		locks <- lock
	}()

	return locks
}

// stillWaiting fails if the Acquire in the background has ended.
func (e *env) stillWaiting(locks <-chan *sqllock.Lock, why string) {
	e.Helper()

	select {
	case lock := <-locks:
		e.Fatalf("Acquire(%q) = token %d while %s, want that it waits", e.name, lock.Token(), why)
	case <-time.After(150 * time.Millisecond):
	}
}

// get takes the lock of an Acquire in the background.
func (e *env) get(locks <-chan *sqllock.Lock) *sqllock.Lock {
	e.Helper()

	lock, ok := <-locks
	if !ok {
		e.FailNow()
	}

	return lock
}

// begin opens a caller's transaction, which is rolled back at the end.
func (e *env) begin(isolation string) Transaction {
	e.Helper()

	if e.Begin == nil {
		e.Fatal("Fixture.Begin is nil, and the strategy has Guard or ReleaseTx")
	}

	tx := e.Begin(e.T, isolation)
	e.Cleanup(func() { _ = tx.Rollback() })

	return tx
}

// grow fails unless the tokens grow strictly.
func (e *env) grow(what string, earlier, later int64) {
	e.Helper()

	if later <= earlier {
		e.Errorf("token after %s = %d, want more than %d", what, later, earlier)
	}
}
