//go:build unix

package stress

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// lastCalls is how many acquisitions are under way when a worker is told to end.
const lastCalls = 20

// shutDown is the ordinary end of a service: its context is cancelled in the middle of acquisitions, it waits for
// them to return, and closes the locker.
func (w *worker) shutDown(ctx context.Context) {
	w.cancelLastCalls(ctx)

	closing, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()

	if err := errors.Join(w.locker.Close(closing), w.outsider.Close(closing)); err != nil {
		w.log.write(record{Time: now(), Note: "close the locker: " + err.Error()})

		return
	}

	w.log.write(record{Time: now(), Op: opClose, Phase: phaseReturn, Outcome: outcomeOK})
	w.lookForLeft(ctx)
}

// cancelLastCalls acquires names that nobody else wants, and cancels the calls together.
func (w *worker) cancelLastCalls(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// A third of them is over before the first answer, and a third after most.
	random := rand.New(rand.NewPCG(w.Seed, uint64(w.Process<<32|w.Life)))
	time.AfterFunc(time.Duration(random.Int64N(int64(15*time.Millisecond))), cancel)

	var calling sync.WaitGroup

	for i := range lastCalls {
		calling.Go(func() {
			// What is granted is left to Close.
			_, _ = w.locker.Acquire(ctx, fmt.Sprintf("last %d.%d", w.Process, i), sqllock.WithMaxWait(w.Lease))
		})
	}

	calling.Wait()
}

// lookForLeft watches for a while what the database says that this worker holds. A call that was cancelled may be
// running there still, so that what it brings comes later.
func (w *worker) lookForLeft(ctx context.Context) {
	watching, done := context.WithTimeout(ctx, w.Lease/2)
	defer done()

	for watching.Err() == nil {
		names, err := w.holding(ctx)
		if err != nil {
			w.log.write(record{Time: now(), Failed: "look for what was left after Close: " + err.Error()})

			return
		}

		for _, name := range names {
			w.log.write(record{Time: now(), Op: opLeft, Phase: phaseReturn, Name: name})
		}

		if len(names) > 0 {
			return
		}

		sleep(watching, w.Lease/20)
	}
}

// holding returns what the database says that this worker holds, without what it has detached.
func (w *worker) holding(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()

	err = patiently(ctx, func() error {
		names, err = readNames(ctx, w.data, w.Place.bind("SELECT name FROM sqllock_holders WHERE label = ? AND pid <> 0"), w.label())

		return err
	})

	return names, err
}

func readNames(ctx context.Context, db *sql.DB, query string, args ...any) (names []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}

		names = append(names, name)
	}

	return names, rows.Err()
}
