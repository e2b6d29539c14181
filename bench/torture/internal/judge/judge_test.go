package judge_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/event"
	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

const (
	lease = 3 * time.Second
	end   = 20 * time.Second
)

// at is an event of the only goroutine of a process, so many tenths of a second after the beginning.
func at(tenths int, kind event.Kind) event.Event {
	return event.Event{At: time.Duration(tenths) * 100 * time.Millisecond, Kind: kind, Who: 1}
}

func wrote(tenths int, sink event.Sink, n int64) event.Event {
	e := at(tenths, event.Wrote)
	e.Sink, e.N = sink, n

	return e
}

func refused(tenths int, sink event.Sink) event.Event {
	e := at(tenths, event.Refused)
	e.Sink = sink

	return e
}

func process(events ...event.Event) judge.Process { return judge.Process{Events: events} }

func TestJudge(t *testing.T) {
	t.Parallel()

	stopped := func(p judge.Process, from, to int) judge.Process {
		p.Stops = append(p.Stops, judge.Span{From: at(from, "").At, To: at(to, "").At})

		return p
	}

	killed := func(p judge.Process, tenths int) judge.Process {
		p.Killed = at(tenths, "").At

		return p
	}

	for _, test := range []struct {
		name      string
		fault     judge.Fault
		processes []judge.Process
		kind      judge.Kind
		why       []string
		check     func(judge.Cell) bool
	}{
		{
			name: "handed on", fault: judge.Nothing, kind: judge.Good,
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held), wrote(5, event.Row, 1), at(90, event.Releases)),
				process(at(2, event.Asked), at(92, event.Held), wrote(95, event.Row, 2)),
			},
			check: func(c judge.Cell) bool { return c.Idle == 200*time.Millisecond && c.Served == 2 && c.Waited == 2 },
		},
		{
			name: "taken over after a crash", fault: judge.Killed, kind: judge.Good,
			processes: []judge.Process{
				killed(process(at(0, event.Asked), at(1, event.Held)), 20),
				process(at(2, event.Asked), at(50, event.Held)),
			},
			check: func(c judge.Cell) bool { return c.Idle == lease },
		},
		{
			name: "never taken over", fault: judge.Killed, kind: judge.Stuck, why: []string{"nobody had it for 18.0 s"},
			processes: []judge.Process{
				killed(process(at(0, event.Asked), at(1, event.Held)), 20),
				process(at(2, event.Asked)),
			},
			check: func(c judge.Cell) bool { return c.Served == 1 && c.Waited == 2 },
		},
		{
			name: "two at once", fault: judge.Restart, kind: judge.Broken,
			why: []string{"two at once for 17.0 s, until the trial ended"},
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held)),
				process(at(2, event.Asked), at(30, event.Held)),
			},
			check: func(c judge.Cell) bool { return c.NeverTold == 1 },
		},
		{
			name: "two at once until it is told", fault: judge.Cut, kind: judge.Broken,
			why: []string{"two at once for 1.0 s"},
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held), at(40, event.Lost)),
				process(at(2, event.Asked), at(30, event.Held)),
			},
			check: func(c judge.Cell) bool { return c.NeverTold == 0 && c.Lost == 1 },
		},
		{
			name: "in doubt while another has it", fault: judge.Cut, kind: judge.Good,
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held), at(10, event.Doubts), at(12, event.Sure), at(20, event.Doubts),
					at(40, event.Lost)),
				process(at(2, event.Asked), at(30, event.Held)),
			},
			check: func(c judge.Cell) bool { return c.Lost == 1 && c.Twice == 0 && c.Idle == time.Second },
		},
		{
			name: "woken and told at once", fault: judge.Stopped, kind: judge.Good,
			processes: []judge.Process{
				stopped(process(at(0, event.Asked), at(1, event.Held), wrote(5, event.CheckedRow, 1),
					refused(90, event.CheckedRow), wrote(90, event.Row, 2), at(90, event.Lost)), 10, 90),
				process(at(2, event.Asked), at(40, event.Held), wrote(45, event.CheckedRow, 2), wrote(45, event.Row, 1)),
			},
			check: func(c judge.Cell) bool {
				return c.LateWrites[judge.Plain] == 1 && c.LateWrites[judge.Token] == 0 && c.RefusedWrites[judge.Token] == 1 &&
					c.Twice == 0 && c.Late() == 0
			},
		},
		{
			name: "a late write that nothing could refuse", fault: judge.Stopped, kind: judge.Broken,
			why: []string{"a late write"},
			processes: []judge.Process{
				stopped(process(at(0, event.Asked), at(1, event.Held), wrote(90, event.Row, 2), at(90, event.Lost)), 10, 90),
				process(at(2, event.Asked), at(40, event.Held), wrote(45, event.Row, 1)),
			},
		},
		{
			name: "late writes past the guard", fault: judge.Stopped, kind: judge.Broken,
			why: []string{"2 late writes past the guard"},
			processes: []judge.Process{
				stopped(process(at(0, event.Asked), at(1, event.Held), wrote(90, event.GuardedRow, 2),
					wrote(91, event.GuardedRow, 3), at(91, event.Lost)), 10, 90),
				process(at(2, event.Asked), at(40, event.Held), wrote(45, event.GuardedRow, 1), wrote(95, event.GuardedRow, 4)),
			},
		},
		{
			name: "a moment at once, and released", fault: judge.Crowd, kind: judge.Broken, why: []string{"two at once for 0.0 s"},
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held), at(3, event.Releases)),
				process(at(0, event.Asked), event.Event{At: at(3, "").At - 20*time.Millisecond, Kind: event.Held, Who: 1}, at(4, event.Releases)),
			},
		},
		{
			name: "a token that lets late writers in beside a guard that does not", fault: judge.Stopped, kind: judge.Broken,
			why: []string{"a late write past the token"},
			processes: []judge.Process{
				stopped(process(at(0, event.Asked), at(1, event.Held), wrote(90, event.CheckedRow, 2), refused(90, event.GuardedRow),
					at(90, event.Lost)), 10, 90),
				process(at(2, event.Asked), at(40, event.Held), wrote(45, event.CheckedRow, 1), wrote(45, event.GuardedRow, 1)),
			},
		},
		{
			name: "granted after the end", fault: judge.Killed, kind: judge.Good,
			processes: []judge.Process{
				killed(process(at(0, event.Asked), at(1, event.Held), wrote(5, event.Row, 1)), 20),
				process(at(2, event.Asked), at(40, event.Held), wrote(45, event.Row, 2), at(199, event.Releases)),
				process(at(2, event.Asked), at(201, event.Held), wrote(202, event.Row, 3)),
			},
		},
		{
			name: "lost for nothing", fault: judge.Nothing, kind: judge.Broken, why: []string{"lost though nothing was wrong"},
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held), at(30, event.Lost)),
				process(at(2, event.Asked), at(30, event.Held)),
			},
		},
		{
			name: "lost with the server", fault: judge.Restart, kind: judge.Good,
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held), at(30, event.Lost)),
				process(at(2, event.Asked), at(30, event.Held)),
			},
		},
		{
			name: "not all served", fault: judge.Crowd, kind: judge.Broken,
			why: []string{"nobody had it for 19.7 s", "1 of 3 were never served"},
			processes: []judge.Process{
				process(at(0, event.Asked), at(1, event.Held), at(2, event.Releases)),
				process(at(0, event.Asked)),
				process(at(1, event.Asked), at(2, event.Held), at(3, event.Releases)),
			},
			check: func(c judge.Cell) bool { return c.Overtaken == 1 },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			cell := judge.Judge(judge.Cell{Fault: test.fault}, test.processes, end, lease)

			if cell.Kind != test.kind || !slices.Equal(cell.Why, test.why) {
				t.Errorf("%s: %v, want %s: %v", cell.Kind, cell.Why, test.kind, test.why)
			}

			if test.check != nil && !test.check(cell) {
				t.Errorf("%+v", cell)
			}
		})
	}
}

// TestBare: the same trial for those who have neither token nor guard.
func TestBare(t *testing.T) {
	t.Parallel()

	cell := judge.Cell{Kind: judge.Good, LateWrites: map[judge.Protection]int{judge.Plain: 1, judge.Token: 0}}

	bare := cell.Bare(lease)
	if want := []string{"a late write"}; bare.Kind != judge.Broken || !slices.Equal(bare.Why, want) {
		t.Errorf("%s: %v, want broken: %v", bare.Kind, bare.Why, want)
	}

	if cell.Late() != 0 || bare.Late() != 1 {
		t.Error("the cell itself was changed")
	}
}
