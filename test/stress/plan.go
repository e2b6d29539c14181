//go:build unix

package stress

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is a kind of fault.
type Fault string

// The faults. Beside them, in every round, callers cancel acquisitions at random moments, reapers run in all
// workers, and some workers have a pool of two connections, or REPEATABLE READ or SERIALIZABLE by default.
const (
	// FaultKill ends a worker with SIGKILL; another takes its place.
	FaultKill Fault = "kill"
	// FaultPause stops a worker with SIGSTOP for longer than the lease.
	FaultPause Fault = "pause"
	// FaultClock steps a worker's wall clock by an hour, forward or back.
	FaultClock Fault = "clock"
	// FaultForce is an operator who ends the grant of whoever holds a name.
	FaultForce Fault = "force"

	// FaultSession ends sessions at the server: pg_terminate_backend, KILL.
	FaultSession Fault = "session"
	// FaultCrash ends the server at once, and starts it again with recovery.
	FaultCrash Fault = "crash"
	// FaultFreeze stops the server where it is, for about a lease.
	FaultFreeze Fault = "freeze"

	// FaultLatency delays what a worker and the server say to each other.
	FaultLatency Fault = "latency"
	// FaultReset breaks a worker's connections: open ones are closed in place of the next answer, those made
	// meanwhile are reset.
	FaultReset Fault = "reset"
	// FaultHalfOpen drops everything on a worker's connections, which stay open.
	FaultHalfOpen Fault = "half-open"
	// FaultStall delivers nothing (bandwidth zero) and then all of it, late.
	FaultStall Fault = "stall"
	// FaultReply lets a worker's statements through and drops the answers.
	FaultReply Fault = "lost reply"
)

// Faults returns all kinds.
func Faults() []Fault {
	return []Fault{
		FaultKill, FaultPause, FaultClock, FaultForce, FaultSession, FaultCrash, FaultFreeze, FaultLatency, FaultReset, FaultHalfOpen,
		FaultStall, FaultReply,
	}
}

// of says whether the fault can strike the pair: SQLite has no server and no network. Its freeze is somebody
// who keeps the file's write lock. TiDB's server is not ours, and crashes if a session is ended that is in a
// transaction (seen on 8.5, https://github.com/pingcap/tidb/issues/63956).
func (f Fault) of(p Pair) bool {
	if p.Engine == "tidb" && (f == FaultSession || f == FaultCrash || f == FaultFreeze) {
		return false
	}

	switch f {
	case FaultKill, FaultPause, FaultClock, FaultForce, FaultFreeze:
		return true
	default:
		return p.hasNetwork()
	}
}

// onServer says that the fault strikes all workers.
func (f Fault) onServer() bool {
	return f == FaultSession || f == FaultCrash || f == FaultFreeze || f == FaultForce
}

// List names faults as ParseFaults reads them.
func List(faults []Fault) string {
	words := make([]string, len(faults))
	for i, f := range faults {
		words[i] = string(f)
	}

	return strings.Join(words, ",")
}

// ParseFaults reads "kill,lost reply"; empty stands for all, "none" for none.
func ParseFaults(text string) ([]Fault, error) {
	switch text {
	case "":
		return Faults(), nil
	case "none":
		return nil, nil
	}

	var faults []Fault

	for word := range strings.SplitSeq(text, ",") {
		f := Fault(strings.TrimSpace(word))
		if !slices.Contains(Faults(), f) {
			return nil, fmt.Errorf("there is no fault %q; there are %q", f, Faults())
		}

		faults = append(faults, f)
	}

	return faults, nil
}

// stroke is one fault of a plan.
type stroke struct {
	at       time.Duration // after the workers were started
	duration time.Duration
	fault    Fault
	process  int    // whom it strikes, if not the server
	name     string // of the lock, for FaultForce and FaultSession
	holding  bool   // for FaultSession: sessions that hold locks, and not any
	step     time.Duration
}

// plan is what a round's seed decides.
type plan struct {
	// kinds are all that strike in the round: one alone, or a mix.
	kinds   []Fault
	plain   bool // no worker batches, hands on or listens
	strokes []stroke
	workers []workerPlan
}

// smallPool is the least that connection-held locks work with.
const smallPool = 2

// workerPlan is how a worker is set up.
type workerPlan struct {
	poolSize   int
	goroutines int
	isolation  string
	plain      bool // without batching, hand-off and notifications
}

// lanes is how many faults strike at a time.
const lanes = 2

// newPlan draws a plan. Rounds with consecutive seeds are a mix and one fault alone in turn, and the latter
// go through all kinds.
func newPlan(seed uint64, s Settings) plan {
	random := rand.New(rand.NewPCG(seed, 0))

	kinds := slices.DeleteFunc(slices.Clone(s.Faults), func(f Fault) bool { return !f.of(s.Pair) })
	goroutines, processes := s.Goroutines, s.Processes

	if seed%2 == 0 && len(kinds) > 0 {
		kinds = []Fault{kinds[seed/2%uint64(len(kinds))]}
	}

	drawn := plan{kinds: kinds, plain: seed/2%3 == 2, workers: make([]workerPlan, processes)}

	for i := range drawn.workers {
		drawn.workers[i].poolSize, drawn.workers[i].goroutines = goroutines+1, goroutines
		// Two rounds of six are all plain, and in the others one worker is.
		drawn.workers[i].plain = drawn.plain || uint64(i) == seed%uint64(processes)
	}

	// One worker with two connections for many waiters, and one with another isolation level.
	small := &drawn.workers[random.IntN(processes)]
	small.poolSize, small.goroutines = smallPool, 3*goroutines

	if s.Pair.hasNetwork() {
		drawn.workers[random.IntN(processes)].isolation = []string{"repeatable read", "serializable"}[random.IntN(2)]
	}

	// It has no other one above Read Committed.
	for i := range drawn.workers {
		if s.Pair.Engine == "tidb" && drawn.workers[i].isolation != "" {
			drawn.workers[i].isolation = "repeatable read"
		}
	}

	if len(kinds) > 0 {
		drawn.strokes = drawStrokes(random, kinds, s)
	}

	return drawn
}

func drawStrokes(random *rand.Rand, kinds []Fault, settings Settings) []stroke {
	names, processes, lease := settings.Names, settings.Processes, settings.Lease

	between := func(lowest, highest time.Duration) time.Duration {
		return lowest + time.Duration(random.Int64N(int64(highest-lowest)))
	}

	var (
		strokes []stroke
		// When a worker, and the server at the end, has a fault: they do not overlap on one.
		busy = make([][]interval, processes+1)
	)

	for range lanes {
		for at := settings.Lead + between(lease/5, lease/2); at < settings.Length; {
			s := stroke{at: at, fault: draw(random, kinds), process: random.IntN(processes), name: names[random.IntN(len(names))], holding: random.IntN(2) == 0}

			switch s.fault {
			case FaultPause:
				s.duration = between(lease*12/10, lease*2)
			case FaultClock:
				s.step = time.Hour
				if random.IntN(2) == 0 {
					s.step = -time.Hour
				}
			case FaultFreeze:
				s.duration = between(lease/2, lease*15/10)
			case FaultCrash:
				s.duration = between(0, lease/2)
			case FaultLatency:
				s.duration = between(lease/4, lease)
			case FaultHalfOpen, FaultStall:
				s.duration = between(lease/4, lease*2)
			case FaultReply:
				s.duration = between(20*time.Millisecond, lease/4)
			case FaultKill, FaultForce, FaultSession, FaultReset:
			}

			whom := s.process
			if s.fault.onServer() {
				whom = processes
			}

			its := interval{s.at, s.at + s.duration + recovery(s.fault, lease)}
			if slices.ContainsFunc(busy[whom], its.overlaps) {
				at += lease / 10

				continue
			}

			busy[whom] = append(busy[whom], its)
			strokes = append(strokes, s)
			at += s.duration + between(lease/5, lease*6/10)
		}
	}

	slices.SortStableFunc(strokes, func(a, b stroke) int { return cmp.Compare(a.at, b.at) })

	return strokes
}

// interval is a part of a round.
type interval struct{ from, to time.Duration }

func (i interval) overlaps(other interval) bool { return i.from < other.to && other.from < i.to }

// draw returns one of the kinds. A crash is rare in a mix, as it keeps everybody from working.
func draw(random *rand.Rand, kinds []Fault) Fault {
	kind := kinds[random.IntN(len(kinds))]
	if kind == FaultCrash && len(kinds) > 1 && random.IntN(5) > 0 {
		return draw(random, kinds)
	}

	return kind
}

// recovery is the time that everybody gets after a fault to go on, so that a round is not all outage.
func recovery(f Fault, lease time.Duration) time.Duration {
	switch f {
	case FaultCrash:
		return 3 * lease
	case FaultFreeze:
		return lease
	default:
		return lease / 10
	}
}
