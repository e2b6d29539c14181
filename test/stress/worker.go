//go:build unix

package stress

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/goleak"

	"github.com/sqllock/sqllock/internal/wallclock"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// workerVariable holds the settings of a worker process; where it is set, the program is one. If it holds askProtocol,
// the program only says its protocol.
const (
	workerVariable = "SQLLOCK_STRESS_WORKER"
	askProtocol    = "protocol"
)

// protocol is the number of all that passes between a run and its workers, which may be of another revision: their
// settings, the commands, the records, the lines of the register, the claims, and the tables of the application. Raise
// it if a worker from before would misread any of that, or be misread: then none from before can run beside ours. A
// field that such a worker may overlook, or leave out, needs no other number.
const protocol = 1

// workerSettings are what a worker process is told.
type workerSettings struct {
	Process    int           `json:"process"` // and Life tell workers apart
	Life       int           `json:"life"`    // a killed worker is followed by one of the same number
	Seed       uint64        `json:"seed"`
	Pair       Pair          `json:"pair"`
	Place      place         `json:"place"`
	Names      []string      `json:"names"`
	Goroutines int           `json:"goroutines"`
	Lease      time.Duration `json:"lease"`
	PoolSize   int           `json:"pool_size"`
	Plain      bool          `json:"plain"`    // without batching, hand-off and notifications
	Register   string        `json:"register"` // socket of the register outside
	Log        string        `json:"log"`      // file
	Profile    profile       `json:"profile"`
	Variant    string        `json:"variant,omitempty"`
}

// profile says what share of the work is of which kind.
type profile struct {
	// LongHold is the share of holds that last longer than a lease, and so need renewals.
	LongHold float64 `json:"long_hold"`
	// Idle is the share of these that use nothing but the lock itself.
	Idle float64 `json:"idle"`
	// SlowGuard is the share of guarded transactions that stay open for a while before they commit.
	SlowGuard float64 `json:"slow_guard"`
	// Cancel is the share of acquisitions whose context the caller cancels at a random moment.
	Cancel float64 `json:"cancel"`
	// Tries lets no acquisition wait.
	Tries bool `json:"tries"`
	// Patient is the share of acquisitions that wait for several leases.
	Patient float64 `json:"patient"`
	// Reading is the share of acquisitions of a name with readers that are theirs.
	Reading float64 `json:"reading"`
	// Brief lets most holds be short.
	Brief bool `json:"brief"`
	// Both is the share of acquisitions that are for two names, with strategy cas.
	Both float64 `json:"both"`
	// NoRenewal leaves leases to run out.
	NoRenewal bool `json:"no_renewal"`
	// ReleaseTx is the share of releases that are part of a guarded transaction.
	ReleaseTx float64 `json:"release_tx"`
	// Detach is the share of locks that are detached in place of a release.
	Detach float64 `json:"detach"`
}

var usual = profile{LongHold: 0.005, Idle: 0.5, SlowGuard: 0.02, Cancel: 0.03, Patient: 0.1, ReleaseTx: 0.1, Both: 0.1, Reading: 0.6, Detach: 0.05}

// besides are the profiles of rounds beside another revision, in turn: what one does seldom is where versions may differ.
var besides = []profile{usual, {SlowGuard: 0.7, Cancel: 0.03}, queueing}

// commands that a worker reads from its standard input; its end means stop.
const (
	commandStep = "step" // and a duration: step the wall clock
	commandStop = "stop"
)

// The longest pauses of a goroutine that did not get the lock: a server that is down is not asked all the time.
const (
	pauseAfterNo    = 5 * time.Millisecond
	pauseAfterError = 100 * time.Millisecond
)

// RunWorker is the main function of a worker process. In any other process it returns at once.
func RunWorker() {
	text := os.Getenv(workerVariable)
	switch text {
	case "":
		return
	case askProtocol:
		fmt.Println(protocol)
		os.Exit(0)
	}

	var settings workerSettings

	err := json.Unmarshal([]byte(text), &settings)
	if err == nil {
		err = work(settings)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}

	os.Exit(0)
}

// worker is one process that uses locks.
type worker struct {
	workerSettings

	log      *logbook
	locker   *sqllock.Locker
	outsider *sqllock.Locker // its locks are in no transaction, so that it hands them on
	data     *sql.DB         // the application's own pool
	variant  *Variant
	ids      atomic.Int64
}

func work(s workerSettings) error {
	log, err := openLogbook(s.Log)
	if err != nil {
		return err
	}

	w := &worker{workerSettings: s, log: log}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	go obey(cancel)

	// pgx goes on with the end of a broken connection for up to 15 seconds; that is bounded, and not ours.
	leaks := []goleak.Option{
		goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"),
	}

	closePools, err := w.open(ctx)
	if err != nil {
		return err
	}

	var working sync.WaitGroup

	working.Go(func() { _ = w.locker.RunReaper(ctx, w.Lease/5, time.Hour) })

	for g := range s.Goroutines {
		working.Go(func() { w.loop(ctx, rand.New(rand.NewPCG(s.Seed, uint64(s.Process<<32|s.Life<<16|g)))) })
	}

	working.Wait()

	w.shutDown(context.WithoutCancel(ctx))

	closePools()

	if err := goleak.Find(leaks...); err != nil {
		w.log.write(record{Time: now(), Note: "left behind: " + err.Error()})
	}

	return nil
}

// obey follows the commands on standard input.
func obey(stop func()) {
	defer stop()

	lines := bufio.NewScanner(os.Stdin)

	for lines.Scan() {
		verb, argument, _ := strings.Cut(lines.Text(), " ")

		switch verb {
		case commandStop:
			return
		case commandStep:
			if d, err := time.ParseDuration(argument); err == nil {
				wallclock.Step(d)
			}
		}
	}
}

func (w *worker) open(ctx context.Context) (closePools func(), err error) {
	variant, err := findVariant(w.Variant)
	if err != nil {
		return nil, err
	}

	w.variant = variant

	db, closeLocks, err := w.Place.openLocks(ctx, w.PoolSize)
	if err != nil {
		return nil, err
	}

	w.data, err = w.Place.open(w.Goroutines)
	if err != nil {
		return nil, err
	}

	strategy, err := variant.strategy(w, db)
	if err != nil {
		return nil, err
	}

	options := []sqllock.LockerOption{
		sqllock.WithLease(w.Lease), sqllock.WithTuning(sqllock.Tuning{PollMin: 5 * time.Millisecond, PollMax: 100 * time.Millisecond}),
		sqllock.WithLabel(w.label()),
	}
	options = append(options, variant.options(w.Plain)...)

	if w.Profile.NoRenewal {
		options = append(options, sqllock.WithoutRenewal())
	}

	for i, locker := range []**sqllock.Locker{&w.locker, &w.outsider} {
		if *locker, err = sqllock.New(witnessed(strategy, w.log, i), options...); err != nil {
			return nil, err
		}
	}

	return func() {
		closeLocks()

		_ = w.data.Close()
	}, nil
}

// label is how the database shows the holder.
func (w *worker) label() string { return fmt.Sprintf("worker %d.%d", w.Process, w.Life) }

// loop goes round until ctx ends.
func (w *worker) loop(ctx context.Context, random *rand.Rand) {
	outside, err := dialRegister(context.WithoutCancel(ctx), w.Register)
	if err != nil {
		w.log.write(record{Time: now(), Failed: "the register does not answer: " + err.Error()})

		return
	}
	defer outside.conn.Close()

	for ctx.Err() == nil {
		u := user{worker: w, locker: w.locker, random: random, outside: outside}
		if u.chance(0.5) {
			u.locker = w.outsider
		}

		if w.Pair.Strategy == "cas" && u.chance(w.Profile.Both) {
			u.both(ctx)

			continue
		}

		got, adopts := outcomeNo, false
		if u.locker.Features().Passes && u.chance(0.3) {
			got, adopts = u.adopt(ctx)
		}

		if !adopts {
			got = u.acquire(ctx, w.Names[random.IntN(len(w.Names))])
		}

		if got != outcomeOK {
			pause := pauseAfterNo
			if got == outcomeUnknown {
				pause = pauseAfterError
			}

			sleep(ctx, u.between(0, pause))

			continue
		}

		u.use(ctx)
		u.release(ctx)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// user is one goroutine from an acquisition to the release.
type user struct {
	*worker

	locker  *sqllock.Locker // the worker's first, or its outsider
	random  *rand.Rand
	outside *registerClient
	name    string // of the lock's slot, when there is a lock
	options []sqllock.LockOption
	lock    handle
	doubt   bool // a COMMIT had no answer
	reads   bool // it asks for, or has, the lock of a reader
	adopts  bool // it asks for a lock that was detached
	others  bool // it asks for another name with the lock's
}

// handle is a lock as the user sees it: a *sqllock.Lock, or what a known-bad variant makes of it.
type handle interface {
	Token() int64
	Owner() string
	Context() context.Context
	Err() error
	Remaining() time.Duration
	Check(ctx context.Context) error
	Extend(ctx context.Context, d time.Duration) error
	Guard(ctx context.Context, tx strategies.Tx) error
	ReleaseTx(ctx context.Context, tx strategies.Tx) error
	Release(ctx context.Context) error
	Detach(ctx context.Context, lease time.Duration) (sqllock.Claim, error)
}

// chance is true in the given share of cases.
func (u *user) chance(share float64) bool { return u.random.Float64() < share }

// between returns a random duration.
func (u *user) between(lowest, highest time.Duration) time.Duration {
	return lowest + time.Duration(u.random.Int64N(int64(highest-lowest)))
}

// call writes down that an operation begins, and returns its record to complete.
func (u *user) call(op operation) record {
	r := record{Op: op, ID: u.ids.Add(1), Name: u.name, Together: u.others && op == opAcquire, Shared: u.reads, Adopted: u.adopts}
	if u.lock != nil {
		r.Token, r.Owner = u.lock.Token(), u.lock.Owner()
	}

	r.Phase, r.Time = phaseCall, now()
	u.log.write(r)

	return r
}

// done writes down how it ended.
func (u *user) done(r record, o outcome, err error) {
	r.Phase, r.Time, r.Outcome = phaseReturn, now(), o
	if err != nil {
		r.Err = err.Error()
	}

	u.log.write(r)
}

// both acquires two names at once, and works under each of them.
func (u *user) both(ctx context.Context) {
	names := slices.DeleteFunc(slices.Clone(u.Names), func(name string) bool { return strings.HasPrefix(name, pool) })
	u.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:min(2, len(names))]

	bounded, longest, cancel := u.bound(ctx)
	defer cancel()

	users, calls := make([]*user, len(names)), make([]record, len(names))

	for i, name := range names {
		one := *u
		one.name, one.others = name, true
		users[i], calls[i] = &one, one.call(opAcquire)
	}

	lock, err := u.locker.Acquire(bounded, names[0], sqllock.WithNames(names[1:]...), sqllock.WithMaxWait(longest))

	for i, one := range users {
		if err != nil {
			one.refused(bounded, calls[i], err)

			continue
		}

		one.has(calls[i], part{u.variant.handle(lock, u.Lease), lock, one.name})
	}

	if err != nil {
		sleep(ctx, u.between(0, pauseAfterError))

		return
	}

	transfers := len(users) == 2 && u.guards() && u.chance(0.7)
	for transfers && users[0].transfer(ctx, users[1]) && u.chance(0.8) {
	}

	for _, one := range users {
		if !transfers {
			one.use(ctx)
		}
	}

	for i, one := range users {
		calls[i] = one.call(opRelease)
	}

	err = lock.Release(ctx)

	for i, one := range users {
		one.answered(calls[i], err)
	}
}

// part is the handle of a lock of several names as the user of one of them sees it.
type part struct {
	handle

	lock *sqllock.Lock
	name string
}

func (p part) Token() int64 { return p.lock.TokenOf(p.name) }

func (p part) Owner() string { return p.lock.OwnerOf(p.name) }

// transfer moves something from one account to another, in a transaction that the locks of both guard, and says whether
// it did.
func (u *user) transfer(ctx context.Context, other *user) bool {
	r := u.call(opTransfer)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*u.Lease)
	defer cancel()

	tx, err := u.data.BeginTx(ctx, nil)
	if err != nil {
		u.done(r, outcomeNo, err)

		return false
	}

	if err := u.transferIn(ctx, tx, other); err != nil {
		_ = tx.Rollback()

		u.done(r, outcomeNo, err)

		return false
	}

	if err := tx.Commit(); err != nil {
		u.doubt, other.doubt = true, true
		u.done(r, outcomeUnknown, err)

		return false
	}

	u.done(r, outcomeOK, nil)

	return true
}

// transferIn guards, reads both balances, and writes them.
func (u *user) transferIn(ctx context.Context, tx *sql.Tx, other *user) error {
	accounts, balances := []*user{u, other}, make([]int64, 2)

	for _, one := range accounts {
		if err := one.lock.Guard(ctx, u.variant.tx(u.Place.tx(tx))); err != nil {
			return err
		}
	}

	for i, one := range accounts {
		err := tx.QueryRowContext(ctx, u.Place.bind("SELECT balance FROM stress_accounts WHERE name = ?"), one.name).Scan(&balances[i])
		if err != nil {
			return err
		}
	}

	if u.chance(u.Profile.SlowGuard) {
		sleep(ctx, u.between(10*time.Millisecond, u.Lease/2))
	}

	amount := 1 + u.random.Int64N(100)

	for i, balance := range []int64{balances[0] - amount, balances[1] + amount} {
		_, err := tx.ExecContext(ctx, u.Place.bind("UPDATE stress_accounts SET balance = ? WHERE name = ?"), balance, accounts[i].name)
		if err != nil {
			return err
		}
	}

	return nil
}

// acquire makes a try, waits for a bounded time, or is cancelled while at it.
func (u *user) acquire(ctx context.Context, name string) outcome {
	u.name, u.options = askFor(name)

	if u.reads = name == book && u.locker.Features().Shared && u.chance(u.Profile.Reading); u.reads {
		u.options = append(u.options, sqllock.WithShared())
	}

	ctx, longest, cancel := u.bound(ctx)
	defer cancel()

	r := u.call(opAcquire)
	lock, err := u.locker.Acquire(context.WithValue(ctx, acquisitionKey{}, r.ID), u.name, append(u.options, sqllock.WithMaxWait(longest))...)
	if err != nil {
		return u.refused(ctx, r, err)
	}

	return u.granted(r, lock)
}

// granted writes down a lock.
func (u *user) granted(r record, lock *sqllock.Lock) outcome {
	u.lock = u.variant.handle(lock, u.Lease)
	if u.reads {
		u.lock = reader{u.lock, fmt.Sprintf("%s/%d", lock.Owner(), r.ID)}
	}

	u.name = strategies.SlotName(u.name, lock.Slot())

	return u.has(r, u.lock)
}

// has writes down what the lock is.
func (u *user) has(r record, lock handle) outcome {
	u.lock = lock
	r.Name, r.Token, r.Owner = u.name, u.lock.Token(), u.lock.Owner()
	r.Until = u.until()
	u.done(r, outcomeOK, nil)

	return outcomeOK
}

// reader is a handle with an owner of its own: that of its lock is all readers'.
type reader struct {
	handle

	owner string
}

func (r reader) Owner() string { return r.owner }

// refused writes down why there is none.
func (u *user) refused(ctx context.Context, r record, err error) outcome {
	var held *sqllock.HeldError

	got := outcomeUnknown
	if errors.As(err, &held) && ctx.Err() == nil {
		got = outcomeNo
	}

	u.done(r, got, err)

	return got
}

// bound draws how long an acquisition waits, and the context that ends it.
func (u *user) bound(ctx context.Context) (bounded context.Context, longest time.Duration, cancel func()) {
	switch {
	case u.Profile.Tries:
	case u.chance(u.Profile.Patient):
		longest = u.between(4*u.Lease, 8*u.Lease)
	case u.chance(0.5):
		longest = u.between(u.Lease/3, u.Lease*3/2)
	}

	if !u.chance(u.Profile.Cancel) {
		// A try has no bound of its own but the context's.
		bounded, cancel = context.WithTimeout(ctx, max(3*u.Lease, longest+u.Lease))

		return bounded, longest, cancel
	}

	bounded, end := context.WithCancel(ctx)
	timer := time.AfterFunc(u.between(0, 10*time.Millisecond), end)

	return bounded, longest, func() {
		timer.Stop()
		end()
	}
}

// until is how long the lock can be trusted, as a time; zero if not at all. The clock is read first.
func (u *user) until() instant {
	t := now()

	remaining := u.lock.Remaining()
	if remaining <= 0 {
		return 0
	}

	return t + instant(remaining)
}

// told asks the lock whether it is held, and writes down that it said yes. The time is from before the
// question.
func (u *user) told() bool {
	t := now()

	if u.lock.Err() != nil {
		return false
	}

	u.log.write(record{
		Time: t, Op: opTold, Phase: phaseReturn, Name: u.name, Owner: u.lock.Owner(), Token: u.lock.Token(), Until: u.until(),
	})

	return true
}

// guards says whether the lock may be used in transactions.
func (u *user) guards() bool { return u.locker != u.outsider }

// use works under the lock.
func (u *user) use(ctx context.Context) {
	steps := u.random.IntN(80)
	if u.Profile.Brief {
		steps = u.random.IntN(5)
	}

	end, idle := time.Now(), false

	if u.chance(u.Profile.LongHold) {
		end = end.Add(u.between(u.Lease*12/10, u.Lease*25/10))
		idle = u.chance(u.Profile.Idle)
	}

	for step := 0; step < steps || time.Now().Before(end) && ctx.Err() == nil; step++ {
		if u.doubt || !u.told() {
			return
		}

		switch {
		case idle, step > 8 && u.chance(0.9):
			sleep(u.lock.Context(), 4*time.Millisecond)
		case u.chance(0.2) && u.guards():
			if u.reads {
				u.readIn(ctx)
			} else {
				u.write(ctx, false)
			}
		case u.chance(0.7):
			if u.reads {
				u.readOutside()
			} else {
				u.writeOutside()
			}
		case u.chance(0.2):
			u.ask(ctx)
		default:
			sleep(ctx, u.between(0, 2*time.Millisecond))
		}
	}
}

// write is the guarded read-modify-write. With free it also releases the lock, as part of the transaction.
//
// When a COMMIT had no answer the work cannot go on: that transaction may still be committed, and the guard keeps
// others out until then, but not its own holder.
func (u *user) write(ctx context.Context, free bool) {
	r := u.call(opWrite)

	// Half of the transactions do not watch the lock's context: the guard must do.
	ctx = context.WithoutCancel(ctx)
	if u.chance(0.5) && !free {
		ctx = u.lock.Context()
	}

	ctx, cancel := context.WithTimeout(ctx, 3*u.Lease)
	defer cancel()

	tx, err := u.data.BeginTx(ctx, nil)
	if err != nil {
		u.done(r, outcomeNo, err)

		return
	}

	if err := u.inTx(ctx, tx, r); err != nil {
		_ = tx.Rollback()

		u.done(r, outcomeNo, err)

		return
	}

	if free {
		err := u.lock.ReleaseTx(ctx, u.variant.tx(u.Place.tx(tx)))
		if err != nil {
			_ = tx.Rollback()

			u.done(r, outcomeNo, err)

			return
		}
	}

	if u.chance(u.Profile.SlowGuard) {
		sleep(ctx, u.between(10*time.Millisecond, u.Lease/2))
	}

	commit := r
	commit.Phase, commit.Frees, commit.Time = phaseCommit, free, now()
	u.log.write(commit)

	if err := tx.Commit(); err != nil {
		u.doubt = true
		u.done(r, outcomeUnknown, err)

		return
	}

	u.done(r, outcomeOK, nil)
}

// readIn reads the register in a guarded transaction, some of the time slowly.
func (u *user) readIn(ctx context.Context) {
	r := u.call(opRead)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*u.Lease)
	defer cancel()

	tx, err := u.data.BeginTx(ctx, nil)
	if err != nil {
		u.done(r, outcomeNo, err)

		return
	}

	err = u.lock.Guard(ctx, u.variant.tx(u.Place.tx(tx)))

	if err == nil && u.chance(u.Profile.SlowGuard) {
		sleep(ctx, u.between(10*time.Millisecond, u.Lease/2))
	}

	if err == nil {
		err = tx.QueryRowContext(ctx, u.Place.bind("SELECT value FROM stress_register WHERE name = ?"), u.name).Scan(&r.Value)
	}

	if err != nil {
		_ = tx.Rollback()

		u.done(r, outcomeNo, err)

		return
	}

	if err := tx.Commit(); err != nil {
		u.done(r, outcomeUnknown, err)

		return
	}

	u.done(r, outcomeOK, nil)
}

// readOutside reads the register outside twice.
func (u *user) readOutside() {
	r := u.call(opOutside)

	first, ok, err := u.outside.ask("read", u.name, u.lock.Token(), 0)
	if err == nil && ok {
		sleep(u.lock.Context(), time.Millisecond)

		var again int64

		again, ok, err = u.outside.ask("read", u.name, u.lock.Token(), 0)
		r.Differs = ok && again != first
	}

	u.outsideDone(r, ok, err)
}

// inTx guards, reads, and writes one more than was read.
func (u *user) inTx(ctx context.Context, tx *sql.Tx, r record) error {
	if err := u.lock.Guard(ctx, u.variant.tx(u.Place.tx(tx))); err != nil {
		return err
	}

	var value int64

	err := tx.QueryRowContext(ctx, u.Place.bind("SELECT value FROM stress_register WHERE name = ?"), u.name).Scan(&value)
	if err != nil {
		return err
	}

	_, err = tx.ExecContext(ctx, u.Place.bind("UPDATE stress_register SET value = ? WHERE name = ?"), value+1, u.name)
	if err != nil {
		return err
	}

	_, err = tx.ExecContext(ctx, u.Place.bind("INSERT INTO stress_writes (name, value, token, writer) VALUES (?, ?, ?, ?)"),
		u.name, value+1, u.lock.Token(), writer(u.Process, u.Life, r.ID))

	return err
}

// writer names a guarded write in the database.
func writer(process, life int, id int64) string { return fmt.Sprintf("%d.%d.%d", process, life, id) }

// writeOutside reads the register outside and writes one more than it read.
func (u *user) writeOutside() {
	r := u.call(opOutside)

	value, ok, err := u.outside.ask("read", u.name, u.lock.Token(), 0)
	if err == nil && ok {
		_, ok, err = u.outside.ask("write", u.name, u.lock.Token(), value+1)
	}

	u.outsideDone(r, ok, err)
}

// outsideDone writes down how an access to the register outside ended.
func (u *user) outsideDone(r record, ok bool, err error) {
	switch {
	case err != nil:
		r.Failed = "the register does not answer: " + err.Error()
		u.done(r, outcomeUnknown, err)
	case ok:
		u.done(r, outcomeOK, nil)
	default:
		// The clock first: whoever is told now that it is held was so at this time.
		r.Until = now()
		r.Held = u.lock.Err() == nil
		u.done(r, outcomeNo, nil)
	}
}

// answered writes down what the database said of a lock that the user has.
func (u *user) answered(r record, err error) {
	switch {
	case err == nil:
		u.done(r, outcomeOK, nil)
	case errors.Is(err, sqllock.ErrLost):
		u.done(r, outcomeNo, err)
	default:
		u.done(r, outcomeUnknown, err)
	}
}

// ask asks the database about the lock.
func (u *user) ask(ctx context.Context) {
	r := u.call(opAsk)

	var err error
	if u.chance(0.5) {
		err = u.lock.Check(ctx)
	} else {
		err = u.lock.Extend(ctx, u.Lease)
	}

	u.answered(r, err)
}

// release frees the lock, some of the time in a transaction first.
func (u *user) release(ctx context.Context) {
	// A lock of a session cannot end with a transaction.
	if u.guards() && !u.reads && !u.locker.Features().ConnectionHeld && !u.doubt && u.chance(u.Profile.ReleaseTx) && u.told() {
		u.write(ctx, true)
	}

	if !u.reads && !u.doubt && u.locker.Features().Passes && u.chance(u.Profile.Detach) && u.told() {
		u.detach(ctx)

		return
	}

	r := u.call(opRelease)
	err := u.lock.Release(ctx)

	u.answered(r, err)
}
