//go:build unix

package stress

import "fmt"

// wait is one that stood in the line of a name.
type wait struct {
	stander

	id          string
	name        string
	acquisition int64 // its number in the worker

	// The ticket was drawn between these.
	from, in instant
	// until is how long it waited for sure: then it asked and was granted the name, if there is a token, or its
	// wait ended, or it began to leave. never: that is not known.
	until   instant
	token   int64
	granted instant
	// left is when it began to leave the line. never: it did not, or it left with the grant.
	left instant
}

// over is when it did not wait any more.
func (w *wait) over() instant { return max(w.until, w.granted) }

// stander is who stands in line: a locker of a worker, for all of its goroutines.
type stander struct{ process, life, locker int }

func (s stander) String() string {
	return fmt.Sprintf("worker %d.%d, locker %d", s.process, s.life, s.locker)
}

// served is a grant by the database, which the goroutines of a process may hand on to each other.
type served struct {
	stander

	name  string
	token int64
	// came is until when it had neither asked nor entered the line; zero if that is not known.
	came instant
	ret  instant
}

// lineRecords are those of one worker that are about lines.
type lineRecords struct {
	process, life int

	waits    map[string]*wait
	order    []*wait // the same, as they came
	served   []served
	asked    map[int64]string  // acquisitions under way, by number: the name
	returned map[int64]instant // others
}

// dead is one who may be in line, but has died.
type dead struct {
	name string
	at   instant
}

func (l *lineRecords) add(r record) {
	who := stander{l.process, l.life, r.Locker}

	switch {
	case r.Op == opAcquire && r.Phase == phaseCall:
		l.asked[r.ID] = r.Name
	case r.Op == opAcquire && r.Phase == phaseReturn:
		delete(l.asked, r.ID)
		l.returned[r.ID] = r.Time
	case r.Phase == phaseEnter && l.waits[r.Wait] == nil:
		w := &wait{name: r.Name, id: r.Wait, stander: who, acquisition: r.ID, from: r.Began, in: r.Time, until: never, left: never}
		l.waits[r.Wait] = w
		l.order = append(l.order, w)
	case r.Phase == phaseLeave:
		if w := l.waits[r.Wait]; w != nil {
			w.until, w.left = min(w.until, r.Time), min(w.left, r.Time)
		}
	case r.Phase == phaseGrant:
		one := served{name: r.Name, token: r.Token, stander: who, came: r.Began, ret: r.Time}

		if w := l.waits[r.Wait]; w != nil {
			one.came = w.from

			if r.Began < w.until {
				w.until, w.token, w.granted = r.Began, r.Token, r.Time
			}
		} else if r.Wait != "" {
			one.came = 0
		}

		l.served = append(l.served, one)
	}
}

// died is when a worker was killed.
func (h *history) died(process, life int) instant {
	for _, d := range h.disturbances {
		if d.Fault == FaultKill && d.Process == process && d.Life == life {
			return d.Start
		}
	}

	return never
}

// addLines takes in what one worker wrote down of lines.
func (h *history) addLines(l lineRecords) {
	died := h.died(l.process, l.life)

	for _, w := range l.order {
		over, returned := l.returned[w.acquisition]
		if !returned {
			over = died
		}

		// The grant may have come when nobody waited for it any more.
		if w.token == 0 || over < w.granted {
			w.token, w.until = 0, min(w.until, over)
		}

		if w.until != never {
			h.waits = append(h.waits, w)
		}
	}

	h.served = append(h.served, l.served...)

	if died == never {
		return
	}

	for _, name := range l.asked {
		h.dead = append(h.dead, dead{name, died})
	}
}
