package scenarios

import (
	"fmt"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
)

// before is what a strategy reached over the floor of a pair in revision
// 50b306a, before its statements were joined. That revision is in no later run,
// and the floor is the same in all. It was measured on 2026-11-24 with this
// program, of which that revision had all but the floor with many names:
//
//	floors='postgres/floor: one committed update, one|(mysql|mariadb)/floor: two'
//	compare -servers postgres,mysql,mariadb -rounds 5 -scenarios pair -contestants "$floors|sqllock forupdate"
//	compare -servers postgres,mysql,mariadb -rounds 5 -scenarios own32,own256 -contestants "$floors|sqllock insert"
type before map[string]float64

var (
	// The time of a pair: 2.10 ms of 579 µs, 6.22 of 2.28 ms, 4.32 of 1.15 ms.
	forUpdateBefore = before{"postgres": 3.37, "mysql": 2.73, "mariadb": 3.76}
	// Pairs in a second: 1190 of 2953, 543 of 1105, 835 of 3900.
	insert32Before = before{"postgres": 0.403, "mysql": 0.491, "mariadb": 0.214}
	// Pairs in a second: 1245 of 2765, 252 of 1452, 730 of 3085.
	insert256Before = before{"postgres": 0.450, "mysql": 0.174, "mariadb": 0.237}
)

// faster is the target of being so many times faster than before.
func (b before) faster(times float64, t report.Target) []report.Target {
	targets := overFloor(t)
	for i := range targets {
		value := b[targets[i].Server]
		targets[i].Reason = fmt.Sprintf("%g times as fast as revision 50b306a, which had %s", times, report.Times(value))

		if targets[i].Bound.AtLeast {
			targets[i].Bound.Value = value * times
		} else {
			targets[i].Bound.Value = value / times
		}
	}

	return targets
}

// each is the target on every database server.
func each(t report.Target) []report.Target {
	var all []report.Target

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Server = server
		all = append(all, t)
	}

	return all
}

// overFloor is the target as a ratio to what a pair has to send at least.
func overFloor(t report.Target) []report.Target {
	t.Format = report.Times

	targets := each(t)
	for i, t := range targets {
		targets[i].AgainstServer, targets[i].Against = t.Server, pairFloor[t.Server]
	}

	return targets
}

// overByHand is the target of advisory over the server's own lock that is
// written by hand.
func overByHand(title string, least float64) []report.Target {
	targets := each(report.Target{
		Name: contest.Advisory, Title: title, Metric: rate, Format: report.Times, Against: contest.GetLockByHand,
		Bound: report.Bound{AtLeast: true, Value: least},
	})
	for i, t := range targets {
		targets[i].AgainstServer = t.Server
		if t.Server == "postgres" {
			targets[i].Against = contest.AdvisoryByHand
		}
	}

	return targets
}

func pairTargets() []report.Target {
	targets := overFloor(report.Target{Name: contest.CAS, Title: "pair", Metric: pairTime, Bound: report.Bound{Value: 1.5}})
	targets[0].Bound.Value = 1.3 // PostgreSQL, where a release need not wait for the disk

	targets = append(targets, overByHand("pairs/s of one client", 0.4)...)

	return append(targets, forUpdateBefore.faster(2.5, report.Target{Name: contest.ForUpdate, Title: "pair", Metric: pairTime})...)
}

// ownTargets are those of goroutines with names of their own: what cas should
// reach over cas without batching, and insert over what it did before.
func ownTargets(title string, postgres, mysql float64, insert before, times float64) []report.Target {
	targets := each(report.Target{
		Name: contest.CAS, Title: title, Metric: rate, Format: report.Times, Against: contest.CASUnbatched,
		Bound: report.Bound{AtLeast: true, Value: mysql},
	})
	targets[0].Bound.Value = postgres

	for i, t := range targets {
		targets[i].AgainstServer = t.Server
	}

	return append(targets, insert.faster(times, report.Target{
		Name: contest.Insert, Title: title, Metric: rate, Bound: report.Bound{AtLeast: true},
	})...)
}

func handOverTargets() []report.Target {
	var all []report.Target

	for _, part := range []struct {
		title           string
		at              float64
		postgres, mysql float64
	}{{"hand-over, p50", 0.5, 1e6, 2e6}, {"hand-over, p99", 0.99, 5e6, 10e6}} {
		for _, t := range each(report.Target{
			Name: contest.CAS, Title: part.title, Metric: handover, At: part.at, Format: report.Nanoseconds,
			Bound: report.Bound{Value: part.mysql},
		}) {
			if t.Server == "postgres" {
				t.Bound.Value = part.postgres
			}

			all = append(all, t)
		}
	}

	return all
}
