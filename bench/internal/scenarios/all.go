package scenarios

import (
	"fmt"
	"slices"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/worker"
)

// All are the scenarios, in the order of the document.
func All() []Scenario {
	return []Scenario{
		{
			Name: "pair", Title: "Uncontended pair, one client",
			Columns: []report.Column{
				{Title: "pair", Metric: pairTime, Format: report.Nanoseconds},
				{Title: "of its floor", Metric: pairTime, Format: report.Times, Against: pairFloor},
				{Title: "p99", Metric: pairP99, Format: report.Nanoseconds, Bare: true},
				{Title: "statements", Metric: statements, Format: report.Count, Bare: true},
				{Title: "log", Metric: logBytes, Format: report.Bytes, Bare: true},
			},
			Plot:    "pair",
			Takes:   func(c contest.Contestant) bool { return c.Name != contest.FloorTold },
			Targets: pairTargets(),
			slice:   load(worker.Ring, 1),
		},
		own("own32", 32, "pairs/s", append(ownTargets("pairs/s, 32 names", 2.5, 2, insert32Before, 2.5),
			overByHand("pairs/s, 32 names", 0.5)...)...),
		own("own256", 256, "", append(ownTargets("pairs/s, 256 names", 6, 3, insert256Before, 4), report.Target{
			Server: "postgres", Name: contest.CAS, Title: "pairs/s, 256 names", Metric: rate, Format: report.Times,
			AgainstServer: "redis", Against: contest.RedisLock, Bound: report.Bound{AtLeast: true, Value: 1.3},
		})...),
		{
			Name: "hot", Title: "One name, one process, 16 goroutines",
			Columns: rateColumns("hand-overs/s"),
			Plot:    "hand-overs/s",
			Takes:   locks,
			Targets: each(report.Target{
				Name: contest.CAS, Title: "hand-overs/s in one process", Metric: rate, Format: report.Count,
				Bound: report.Bound{AtLeast: true, Value: 100_000},
			}),
			slice: load(worker.Shared, 16),
		},
		{
			Name: "beside", Title: "One name, 16 goroutines of one process, one of another",
			Columns: []report.Column{
				{Title: "hand-overs/s", Metric: rate, Format: report.Count, More: true},
				{Title: "longest wait of the other process", Metric: longest, Format: report.Nanoseconds},
			},
			Takes: locks,
			Targets: each(report.Target{
				Name: contest.CAS, Title: "longest wait of the other process", Metric: longest, At: 1, Format: report.Nanoseconds,
				Bound: report.Bound{Value: 100e6},
			}),
			slice: load(worker.Shared, 16, 1),
		},
		{
			Name: "processes", Title: "One name, 4 processes of 4 goroutines",
			Columns: append(rateColumns("hand-overs/s"),
				report.Column{Title: "longest wait of a process", Metric: longest, Format: report.Nanoseconds}),
			Takes: locks,
			slice: load(worker.Shared, 4, 4, 4, 4),
		},
		{
			Name: "handover", Title: "Hand-over between two processes",
			Columns: []report.Column{
				{Title: "p50", Metric: handover, Format: report.Nanoseconds},
				{Title: "p99", Metric: handover, Format: report.Nanoseconds, At: 0.99},
				{Title: "p50 from the start of the release", Metric: handoverBegan, Format: report.Nanoseconds, At: 0.5},
				{Title: "p99 from the start of the release", Metric: handoverBegan, Format: report.Nanoseconds, At: 0.99},
			},
			Plot:    "p50 from the start of the release",
			Takes:   func(c contest.Contestant) bool { return locks(c) || c.Name == contest.FloorTold },
			Targets: handOverTargets(),
			slice:   handOver,
		},
		{
			Name: "held", Title: "10,000 locks of one process", Once: true,
			Columns: []report.Column{
				{Title: "statements in a renewal interval (10 s)", Metric: renewals, Format: report.Count},
				{Title: "memory", Metric: memory, Format: report.Bytes},
				{Title: "goroutines, at most", Metric: goroutines, Format: report.Count},
				{Title: "more than with 100 locks", Metric: growth, Format: report.Count},
			},
			Takes: func(c contest.Contestant) bool { return c.Name == contest.CAS && c.Server != "sqlite" },
			Targets: slices.Concat(
				each(report.Target{
					Name: contest.CAS, Title: "statements in a renewal interval, 10,000 locks", Metric: renewals, Format: report.Count, Bound: report.Bound{Value: 40},
				}),
				each(report.Target{
					Name: contest.CAS, Title: "memory of 10,000 locks", Metric: memory, Format: report.Bytes,
					Bound: report.Bound{Below: true, Value: 20 << 20},
				}),
				each(report.Target{
					Name: contest.CAS, Title: "goroutines of 10,000 locks, more than of 100", Metric: growth, Format: report.Count, Bound: report.Bound{Value: 50},
				}),
			),
			slice: held,
		},
		{
			Name: "waiters", Title: "1,000 waiters of one process on one held name", Once: true, Together: true,
			Columns: []report.Column{
				{Title: "more connections", Metric: connections, Format: report.Count},
				{Title: "statements/s", Metric: perSecond, Format: report.Count},
				{Title: "goroutines", Metric: goroutines, Format: report.Count},
			},
			Plot: "statements/s",
			Takes: func(c contest.Contestant) bool {
				// The others do not tell what they are sent, or cannot give up.
				return c.Group == contest.Library && c.Server != "sqlite" || c.Server == "redis"
			},
			Targets: slices.Concat(
				each(report.Target{
					Name: contest.CAS, Title: "more connections, 1,000 waiters", Metric: connections, Format: report.Count, Bound: report.Bound{Value: 1},
				}),
				each(report.Target{
					Name: contest.CAS, Title: "statements/s, 1,000 waiters", Metric: perSecond, Format: report.Count,
					Bound: report.Bound{Below: true, Value: 2},
				}),
			),
			slice: waiters,
		},
		{
			Name: "crowd", Title: "100 names, each wanted by 8 processes", Once: true,
			Columns: append(rateColumns("hand-overs/s"),
				report.Column{Title: "median wait", Metric: pairTime, Format: report.Nanoseconds},
				report.Column{Title: "p99", Metric: pairP99, Format: report.Nanoseconds}),
			Takes: crowded,
			slice: crowd,
		},
		{
			Name: "standbys", Title: "Two processes hand a name to each other beside 200 standbys of another", Once: true,
			Columns: standbyColumns(),
			Takes:   crowded,
			Targets: each(report.Target{
				Name: contest.CAS, Title: "hand-overs/s beside 200 standbys in 100 processes, of those alone",
				Metric: besideStandbys(slices.Max(standbyProcesses)), Format: report.Times, Bound: report.Bound{AtLeast: true, Value: 0.8},
			}),
			slice: standbys,
		},
		{
			Name: "takeover", Title: "Take-over after SIGKILL, lease 3 s", AtOnce: true,
			Columns: []report.Column{
				{Title: "taken over after", Metric: takeover, Format: report.Nanoseconds},
				{Title: "of the lease", Metric: takeoverShare, Format: report.Times, Bare: true},
			},
			Plot:  "taken over after",
			Takes: locks,
			slice: takeOver,
		},
		{
			Name: "guard", Title: "A guard in a transaction",
			Columns: []report.Column{
				{Title: "transaction", Metric: plain, Format: report.Nanoseconds},
				{Title: "guarded", Metric: guarded, Format: report.Nanoseconds},
				{Title: "ratio", Metric: guardOver, Format: report.Times},
			},
			Takes: func(c contest.Contestant) bool { return c.Name == contest.CAS },
			slice: guard,
		},
	}
}

// Drawn says whether a contestant is in the pictures, beside the tables, and as
// what: one floor for each server, and no variants.
func Drawn(c contest.Contestant) (label string, family report.Family, drawn bool) {
	switch c.Group {
	case contest.Floor:
		return "floor", report.Floors, c.Name == pairFloor[c.Server] || c.Name == contest.FloorTold
	case contest.Library:
		return c.Name, report.Ours, !c.Variant
	default:
		return c.Name, report.Others, true
	}
}

// standbyProcesses is among how many processes standbys are divided.
var standbyProcesses = []int{4, 20, 100}

func standbyColumns() []report.Column {
	columns := []report.Column{{Title: "hand-overs/s alone", Metric: rate, Format: report.Count, More: true}}

	for _, processes := range standbyProcesses {
		columns = append(columns,
			report.Column{Title: fmt.Sprintf("of that with %d processes", processes), Metric: besideStandbys(processes), Format: report.Times, Bare: true},
			report.Column{Title: "their statements/s", Metric: standbysSend(processes), Format: report.Count, Bare: true})
	}

	return columns
}

// crowded are those whom many processes use at a time: of this library the strategy that most use, and of others one on each server.
func crowded(c contest.Contestant) bool {
	return c.Name == contest.CAS && c.Server != "sqlite" || c.Name == contest.RedSync || c.Server == "etcd"
}

func locks(c contest.Contestant) bool { return c.Group != contest.Floor }

// pairFloor is what a pair is compared with, by server: what a lock in a row
// has to send at least.
var pairFloor = map[string]string{
	"postgres": contest.FloorUpdateAndRoundTrip,
	"mysql":    contest.FloorTwoUpdates,
	"mariadb":  contest.FloorTwoUpdates,
	"sqlite":   contest.FloorTwoUpdates,
}

func rateColumns(title string) []report.Column {
	return []report.Column{
		{Title: title, Metric: rate, Format: report.Count, More: true},
		{Title: "statements", Metric: statements, Format: report.Count, Bare: true},
		{Title: "log", Metric: logBytes, Format: report.Bytes, Bare: true},
	}
}

// own is a scenario of goroutines with names of their own. The floor takes part:
// figures of other revisions can be compared over it.
func own(name string, goroutines int, plot string, targets ...report.Target) Scenario {
	return Scenario{
		Name: name, Title: report.Count(float64(goroutines)) + " goroutines with names of their own",
		Columns: rateColumns("pairs/s"), Plot: plot, Targets: targets,
		Takes: func(c contest.Contestant) bool { return locks(c) || c.Name == pairFloor[c.Server] },
		slice: load(worker.Own, goroutines),
	}
}
