//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// make makes one fault, and notes when it struck. ctx ends with the round; what was begun is undone all the
// same.
func (r *round) make(ctx context.Context, s stroke) {
	whole := context.WithoutCancel(ctx)
	note := disturbance{Start: now(), Fault: s.fault, Process: s.process}

	if s.fault.onServer() {
		note.Process = -1
	}

	// One thing at a time on a worker, and on the server: on a slow machine a fault may last longer than the plan
	// thought. Then the next is left out.
	whom := &r.busy[s.process]
	if s.fault.onServer() {
		whom = &r.busy[r.Processes]
	}

	if !whom.TryLock() {
		return
	}
	defer whom.Unlock()

	made, err := true, error(nil)

	switch s.fault {
	case FaultKill:
		note.Life, err = r.kill(s.process)
	case FaultPause:
		made, err = r.pause(whole, s)
	case FaultClock:
		note.Step = s.step
		r.worker(s.process).command("%s %s", commandStep, s.step)
	case FaultForce:
		note.Name = s.name
		made = r.host.force(whole, s.name)
	case FaultSession:
		made = r.host.endSessions(whole, s.name, s.holding)
	case FaultCrash:
		err = r.crash(whole, s.duration)
	case FaultFreeze:
		made, err = r.host.freeze(whole, s.duration)
	default:
		err = r.links[s.process].disturb(whole, s.fault, s.duration)
	}

	note.End = now()

	r.mutex.Lock()
	defer r.mutex.Unlock()

	if err != nil {
		r.failures = append(r.failures, fmt.Errorf("fault %q: %w", s.fault, err))
	} else if made {
		r.disturbances = append(r.disturbances, note)
	}
}

func (r *round) worker(number int) *process {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	return r.workers[number]
}

// kill kills a worker and starts the next.
func (r *round) kill(number int) (life int, err error) {
	worker := r.worker(number)
	ended := worker.kill()

	r.mutex.Lock()
	defer r.mutex.Unlock()

	if ended != nil {
		r.ended = append(r.ended, ended)
	}

	next, err := r.start(number, worker.settings.Life+1)
	if err != nil {
		return 0, err
	}

	r.workers[number] = next

	return worker.settings.Life, nil
}

// pause stops a worker and lets it go on.
func (r *round) pause(ctx context.Context, s stroke) (bool, error) {
	worker := r.worker(s.process)
	if err := worker.child.Signal(syscall.SIGSTOP); err != nil {
		return false, err
	}

	sleep(ctx, s.duration)

	return true, worker.child.Signal(syscall.SIGCONT)
}

// crash ends the server and starts it again.
func (r *round) crash(ctx context.Context, down time.Duration) error {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Minute)
	defer cancel()

	if err := r.host.set.Crash(whole, r.Pair.Engine); err != nil {
		return err
	}

	// Its address may be another server's until it is back.
	if err := r.redirect(whole, nowhere); err != nil {
		return err
	}

	sleep(ctx, down)

	if err := r.host.set.Restart(whole, r.Pair.Engine); err != nil {
		return err
	}

	return r.redirect(whole, r.host.address(whole))
}

// nowhere is an address where nobody listens.
const nowhere = "127.0.0.1:1"

func (r *round) redirect(ctx context.Context, address string) error {
	var errs []error

	for _, link := range r.links {
		errs = append(errs, link.redirect(ctx, address))
	}

	return errors.Join(errs...)
}

// force frees a name as an operator does, and says whether somebody held it.
func (h *host) force(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	db, closePool, err := h.place().openLocks(ctx, 2)
	if err != nil {
		return false
	}
	defer closePool()

	locker, err := sqllock.New(h.pair.strategy(db))
	if err != nil {
		return false
	}

	// The server may be down just now, and the name free: then there is no fault.
	seen, err := locker.Inspect(ctx, name)

	return err == nil && locker.ForceRelease(ctx, seen, "a fault test") == nil
}

// endSessions ends some sessions, and says whether it ended one. The server may be down just now.
func (h *host) endSessions(ctx context.Context, name string, holding bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	server := h.place()
	server.Database = ""

	var ended int

	err := inPool(server, func(db *sql.DB) (err error) {
		ended, err = h.place().endSessions(ctx, db, name, holding)

		return err
	})

	return err == nil && ended > 0
}

// freeze keeps the server from answering for a while.
func (h *host) freeze(ctx context.Context, d time.Duration) (bool, error) {
	if !h.pair.hasNetwork() {
		return h.occupy(ctx, d), nil
	}

	whole := context.WithoutCancel(ctx)

	if err := h.set.Freeze(whole, h.pair.Engine); err != nil {
		return false, errors.Join(err, h.set.Thaw(whole, h.pair.Engine))
	}

	sleep(ctx, d)

	return true, h.set.Thaw(whole, h.pair.Engine)
}

// occupy keeps the write lock of SQLite's file.
func (h *host) occupy(ctx context.Context, d time.Duration) bool {
	return inPool(h.place(), func(db *sql.DB) error {
		tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
		if err != nil {
			return err
		}

		sleep(ctx, d)

		return tx.Rollback()
	}) == nil
}
