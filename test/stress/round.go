//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/edited"
	"github.com/sqllock/sqllock/test/schema"
)

// Settings of a round; the same for all rounds of a pair.
type Settings struct {
	Pair       Pair
	Faults     []Fault
	Names      []string
	Processes  int
	Goroutines int // in each process; one has more
	Lease      time.Duration
	Length     time.Duration
	Lead       time.Duration // at the beginning of the length, in which no fault strikes
	Profile    profile
	Variant    string
	// Mixed has every second worker be of another version than ours, which has no variant.
	Mixed bool
}

// other says whether a worker is of the other version.
func (s Settings) other(number int) bool { return s.Mixed && number%2 == 1 }

// bound is what a name may take longer than its lease to become free after its holder has gone: the server's
// time to notice, the reaper's, and ours to ask, on a machine that has much to do.
func (s Settings) bound() time.Duration {
	bound := 3 * time.Second

	if s.Pair.connectionHeld() && s.Pair.Engine != "postgres" {
		// wait_timeout is in whole seconds, rounded up.
		bound += time.Second
	}

	return bound
}

// rest is how much longer those in line keep a name who died far back, while it stood still (docs/strategies.md#far-back): a
// quarter of that time, or two seconds.
func (s Settings) rest() time.Duration { return max(s.Length/4, 2*time.Second) }

// stopGrace is how long a worker may take to end: its calls are bounded by a few leases.
func (s Settings) stopGrace() time.Duration { return 10*s.Lease + 10*time.Second }

// disturbance is a fault as it was made.
type disturbance struct {
	Start   instant `json:"start"`
	End     instant `json:"end"`
	Fault   Fault   `json:"fault"`
	Process int     `json:"process"` // -1: all
	Life    int     `json:"life,omitempty"`
	Name    string  `json:"name,omitempty"` // of the one lock that it concerns; empty: all
	// Step is that of a clock.
	Step time.Duration `json:"step,omitempty"`
}

// round is one run of the workers under the faults of a plan.
type round struct {
	Settings

	host   *host
	seed   uint64
	plan   plan
	folder string

	register *register
	links    []*link
	busy     []sync.Mutex // of each worker, and of the server at the end: while a fault strikes it

	mutex        sync.Mutex
	workers      []*process // that run
	past         []*process // all that there were
	disturbances []disturbance
	failures     []error
	ended        []error // workers that had ended by themselves when they were to be killed
	stopped      instant // when the last worker had ended
}

// result is what a round was.
type result struct {
	seed       uint64
	plan       plan
	violations []violation
	tally      tally
	folder     string
	// disturbances are the faults as they were made.
	disturbances []disturbance
}

// run runs the round and judges it. An error is one of the run itself, not of a lock. The folder is removed
// unless something is wrong.
func (h *host) run(ctx context.Context, s Settings, seed uint64) (result, error) {
	folder, err := os.MkdirTemp("", "sqllock-stress-")
	if err != nil {
		return result{}, err
	}

	r := &round{
		Settings: s, host: h, seed: seed, folder: folder, busy: make([]sync.Mutex, s.Processes+1),
		plan: newPlan(seed, s),
	}

	judged, err := r.run(ctx)
	judged.folder = folder

	if err != nil || len(judged.violations) > 0 {
		return judged, err
	}

	return judged, os.RemoveAll(folder)
}

func (r *round) run(ctx context.Context) (result, error) {
	judged := result{seed: r.seed, plan: r.plan}

	if err := r.begin(ctx); err != nil {
		return judged, own(errors.Join(err, r.end()))
	}

	r.strike(ctx)

	stopped := r.end()
	if len(r.failures) > 0 {
		return judged, own(errors.Join(r.failures...))
	}

	if err := ctx.Err(); err != nil {
		return judged, context.Cause(ctx)
	}

	history, err := r.read(ctx)
	if err != nil {
		return judged, err
	}

	if stopped = errors.Join(append(r.ended, stopped)...); stopped != nil {
		history.note(checkLeft, stopped.Error())
	}

	if err := r.broken(); err != nil {
		history.note(checkLeft, err.Error())
	}

	if err := history.empty(r.plan.workers); err != nil && r.Variant == "" {
		return judged, err
	}

	if err := r.after(ctx, history); err != nil {
		return judged, err
	}

	judged.violations, judged.tally = check(history, r.folder)
	judged.disturbances = history.disturbances

	return judged, nil
}

// begin starts the register, the links and the workers.
func (r *round) begin(ctx context.Context) (err error) {
	if err := r.host.reset(ctx); err != nil {
		return err
	}

	if r.register, err = openRegister(ctx, filepath.Join(r.folder, "register")); err != nil {
		return err
	}

	for i := range r.Processes {
		if r.Pair.hasNetwork() {
			link, err := openLink(ctx, r.host.address(ctx))
			if err != nil {
				return err
			}

			r.links = append(r.links, link)
		}

		worker, err := r.start(i, 0)
		if err != nil {
			return err
		}

		r.workers = append(r.workers, worker)
	}

	return nil
}

// start starts a worker.
func (r *round) start(number, life int) (*process, error) {
	set := r.plan.workers[number]

	at := r.host.place()
	at.Isolation, at.IsolationVariable = set.isolation, r.host.isolationVariable

	if r.Pair.hasNetwork() {
		at.Address = r.links[number].address()
	}

	var revision *Revision // ours

	variant := r.Variant
	if r.other(number) {
		revision, variant = r.host.beside, ""
	}

	worker, err := startWorker(workerSettings{
		Process: number, Life: life, Seed: r.seed, Pair: r.Pair, Place: at, Names: r.Names,
		Goroutines: set.goroutines, Lease: r.Lease, PoolSize: set.poolSize, Plain: set.plain, Register: filepath.Join(r.folder, "register"),
		Log: logName(r.folder, number, life), Profile: r.Profile, Variant: variant,
	}, revision, r.folder)
	if err == nil {
		r.past = append(r.past, worker)
	}

	return worker, err
}

func logName(folder string, number, life int) string {
	return filepath.Join(folder, fmt.Sprintf("worker-%d.%d", number, life))
}

// strike makes the faults of the plan, and returns when all of them are over.
func (r *round) strike(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.Length)
	defer cancel()

	var striking sync.WaitGroup

	for _, s := range r.plan.strokes {
		striking.Go(func() {
			sleep(ctx, s.at)

			if ctx.Err() == nil {
				r.make(ctx, s)
			}
		})
	}

	if r.host.beside != nil {
		striking.Go(func() {
			sleep(ctx, r.Length/2)
			r.migrate(context.WithoutCancel(ctx))
		})
	}

	<-ctx.Done()
	striking.Wait()
}

// migrate brings the tables of the other revision to what they are today, while workers of both use them. No fault
// strikes the server meanwhile: an operator would have to mend what it breaks off.
func (r *round) migrate(ctx context.Context) {
	server := &r.busy[r.Processes]

	server.Lock()
	defer server.Unlock()

	err := r.host.ask(ctx, func(db *sql.DB) error { return schema.Up(ctx, db, r.host.place().dialect()) })
	if err != nil {
		r.mutex.Lock()
		defer r.mutex.Unlock()

		r.failures = append(r.failures, fmt.Errorf("in the middle of the round: %w", err))
	}
}

// end stops the workers, and says what is wrong with how they ended.
func (r *round) end() error {
	var (
		stopping sync.WaitGroup
		errs     = make([]error, len(r.workers))
	)

	for i, worker := range r.workers {
		stopping.Go(func() { errs[i] = worker.stop(r.host.machine, r.stopGrace()) })
	}

	stopping.Wait()

	r.stopped = now()

	for _, link := range r.links {
		link.close()
	}

	if r.register != nil {
		r.register.close()
	}

	return errors.Join(errs...)
}

// broken says if a worker panicked or raced, whatever became of it later.
func (r *round) broken() error {
	text, err := os.ReadFile(filepath.Join(r.folder, "output"))
	if err != nil {
		return err
	}

	for _, mark := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if strings.Contains(string(text), mark) {
			return fmt.Errorf("a worker said %q, see output", mark)
		}
	}

	return nil
}

// after checks that every name becomes free and that nothing is left. The workers are gone.
func (r *round) after(ctx context.Context, history *history) error {
	began := r.stopped

	db, closePool, err := r.host.place().openLocks(ctx, 2*len(r.Names)+2)
	if err != nil {
		return err
	}

	closed := sync.OnceFunc(closePool)
	defer closed()

	// A variant shows here, too, if it takes one name for another.
	variant, err := findVariant(r.Variant)
	if err != nil {
		return err
	}

	strategy := r.Pair.strategy(db)
	if variant != nil && !variant.half {
		strategy = r.Pair.strategy(edited.DB(db, variant.change))
	}

	locker, err := sqllock.New(strategy, append(variant.options(false),
		sqllock.WithTuning(sqllock.Tuning{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond}), sqllock.WithMaxWait(time.Minute))...)
	if err != nil {
		return err
	}

	// All at the same time: names that differ are different locks.
	var acquiring sync.WaitGroup

	locks, failed := make([]*sqllock.Lock, len(r.Names)), make([]error, len(r.Names))

	for i, name := range r.Names {
		acquiring.Go(func() {
			call := now()

			asked, options := askFor(name)

			lock, err := locker.Acquire(ctx, asked, options...)
			if err != nil && !errors.Is(err, sqllock.ErrNotAcquired) {
				failed[i] = err

				return
			}

			if err != nil {
				history.note(checkFree, fmt.Sprintf("%q was not free %s after the last worker had ended: %v",
					name, time.Duration(now()-began).Round(time.Millisecond), err))

				return
			}

			locks[i] = lock
			history.add(&grant{
				name: strategies.SlotName(asked, lock.Slot()), owner: lock.Owner(), token: lock.Token(),
				process: -1, call: call, ret: now(), until: now(),
			})
		})
	}

	acquiring.Wait()

	if history.free = r.host.machine.elapsed(began); history.free > r.Lease+r.bound()+r.rest() {
		history.note(checkFree, fmt.Sprintf("not all names were free before %s after the last worker had ended",
			history.free.Round(time.Millisecond)))
	}

	if err := errors.Join(failed...); err != nil {
		return own(err)
	}

	for _, lock := range locks {
		if lock == nil {
			continue
		}

		if err := lock.Release(ctx); errors.Is(err, sqllock.ErrLost) {
			history.note(checkLeft, fmt.Sprintf("%q was taken away when nobody else was there: %v", lock.Name(), err))
		} else if err != nil {
			return own(err)
		}
	}

	if _, err := locker.Reap(ctx, time.Hour); err != nil {
		return own(err)
	}

	if err := locker.Close(ctx); err != nil {
		history.note(checkLeft, "close the last locker: "+err.Error())
	}

	closed()

	return r.nothingLeft(ctx, history, began)
}

// nothingLeft waits until the server has no session of the workers any more, and counts the rows that say that
// a lock is held.
func (r *round) nothingLeft(ctx context.Context, history *history, began instant) error {
	return r.host.ask(ctx, func(db *sql.DB) error {
		held, err := r.host.place().held(ctx, db)
		if err != nil {
			return err
		}

		if held > 0 {
			history.note(checkLeft, fmt.Sprintf("%d rows say that a lock is held, after all were released and reaped", held))
		}

		for {
			count, err := r.host.place().sessions(ctx, db)
			if err != nil || count == 0 {
				return err
			}

			if waited := r.host.machine.elapsed(began); waited > 2*r.Lease+2*r.bound() {
				history.note(checkLeft, fmt.Sprintf("%d sessions at the server %s after the last worker had ended", count, waited.Round(time.Millisecond)))

				return nil
			}

			sleep(ctx, 20*time.Millisecond)
		}
	})
}
