//go:build unix

package stress

import (
	"os"
	"slices"
	"testing"
	"time"
)

// The histories here are made up: one that is in order, and others in which one thing is wrong.

// ms is an instant so many milliseconds after the start.
func ms(n int) instant { return instant(time.Duration(n) * time.Millisecond) }

// orderly is a history in which a holder is killed, and two more follow.
func orderly() *history {
	return &history{
		Settings: Settings{Pair: Pair{"postgres", "cas"}, Names: []string{"a"}, Lease: time.Second},
		counts:   map[operation]int{opAcquire: 4},
		grants: []*grant{
			{
				name: "a", owner: "A", token: 10, call: ms(0), ret: ms(5), until: ms(985), told: []instant{ms(5), ms(20)},
				process: 0,
			},
			{
				name: "a", owner: "B", token: 20, call: ms(30), ret: ms(1010), until: ms(2000), told: []instant{ms(1011)}, process: 1,
				freeing: ms(1100), released: ms(1110),
			},
			{name: "a", owner: "C", token: 30, call: ms(1050), ret: ms(1112), until: ms(2100), process: 2, freeing: ms(1200), released: ms(1210)},
		},
		guards: []*guarded{
			{name: "a", token: 10, writer: "0.0.1", commit: ms(10), ret: ms(12), acknowledged: true, committed: true},
			{name: "a", token: 20, writer: "1.0.1", commit: ms(1020), ret: never, committed: true, process: 1},
		},
		writes:       map[string][]write{"a": {{"a", 1, 10, "0.0.1"}, {"a", 2, 20, "1.0.1"}}},
		outside:      map[string][]accepted{"a": {{1, 10}, {2, 20}}},
		disturbances: []disturbance{{Start: ms(25), End: ms(27), Fault: FaultKill, Process: 0}},
	}
}

func TestCheckAcceptsAnOrderlyHistory(t *testing.T) {
	t.Parallel()

	found, counted := check(orderly(), t.TempDir())
	if len(found) > 0 {
		t.Errorf("check() = %v, want nothing", found)
	}

	if counted.Takeovers != 1 || counted.Deaths != 1 || counted.Worst != 980*time.Millisecond {
		t.Errorf("%d take-overs, %d deaths, worst %s; want 1, 1, 980ms", counted.Takeovers, counted.Deaths, counted.Worst)
	}
}

// Readers have one token, at the same time; one that died is there until its lease ends.
func TestCheckAcceptsReaders(t *testing.T) {
	t.Parallel()

	h := orderly()
	h.grants[1].freeing, h.grants[1].released = ms(1040), ms(1045)
	h.grants[2] = &grant{name: "a", owner: "C/1", token: 30, shared: true, call: ms(1041), ret: ms(1046), until: ms(2000), process: 2}
	h.grants = append(h.grants,
		&grant{name: "a", owner: "C/2", token: 30, shared: true, call: ms(1047), ret: ms(1050), until: ms(2010), process: 2, freeing: ms(1200), released: ms(1210)},
		&grant{name: "a", owner: "C/3", token: 30, shared: true, call: ms(1150), ret: ms(1160), until: ms(2100), process: 3, freeing: ms(1220), released: ms(1230)},
		&grant{name: "a", owner: "D", token: 40, call: ms(1170), ret: ms(2001), until: ms(3000), process: 0, life: 1},
	)
	h.readings = []reading{{"a", 30, 2, 3, 0}}

	if found, _ := check(h, t.TempDir()); len(found) > 0 {
		t.Errorf("check() = %v, want nothing", found)
	}
}

func TestCheckFinds(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		spoil func(h *history)
		by    []string
	}{
		"a grant within another's trust window": {
			func(h *history) { h.grants[1].ret = ms(980) }, []string{checkWindows, checkLinear},
		},
		"a grant before the release": {
			func(h *history) { h.grants[2].ret = ms(1090) }, []string{checkWindows, checkLinear},
		},
		"two grants with one token": {
			func(h *history) { h.grants[2].token = 20 }, []string{checkTokens},
		},
		"a token that went back": {
			func(h *history) { h.grants[2].token, h.grants[2].call = 15, ms(1111) }, []string{checkTokens},
		},
		"a lock that says it is held after its successor's grant": {
			func(h *history) { h.grants[0].told = append(h.grants[0].told, ms(1011)) }, []string{checkTold},
		},
		"a name that is held after Close": {
			func(h *history) { h.leftovers = []leftover{{"last 1.0", 1, 0}} }, []string{checkClosed},
		},
		"a write that was lost": {
			func(h *history) { h.writes["a"][1].value = 1 }, []string{checkGuard},
		},
		"a stale write": {
			func(h *history) { h.guards[0].commit, h.guards[0].ret = ms(1015), ms(1016) }, []string{checkGuard, checkLinear},
		},
		"an acknowledged write that is not there": {
			func(h *history) { h.guards[0].committed = false }, []string{checkGuard},
		},
		"a transfer that was lost": {
			func(h *history) { h.sum = -1 }, []string{checkSum},
		},
		"a write outside that was lost": {
			func(h *history) { h.outside["a"][1].value = 1 }, []string{checkOutside},
		},
		"the rightful holder refused": {
			func(h *history) { h.refusals = []refusal{{name: "a", token: 20, held: ms(1030), process: 1}} }, []string{checkOutside},
		},
		"a writer beside a reader": {
			func(h *history) { h.grants[1].shared, h.grants[1].ret = true, ms(980) }, []string{checkWindows, checkLinear},
		},
		"a reader with the token of a writer": {
			func(h *history) { h.grants[1].shared, h.grants[1].token = true, h.grants[0].token }, []string{checkTokens},
		},
		"a reader who saw what came later": {
			func(h *history) { h.readings = []reading{{"a", h.grants[0].token, 2, 0, 0}} }, []string{checkGuard},
		},
		"something left behind": {
			func(h *history) { h.note(checkLeft, "a goroutine") }, []string{checkLeft},
		},
	}

	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			h, folder := orderly(), t.TempDir()
			c.spoil(h)

			found, _ := check(h, folder)
			for _, want := range c.by {
				if !slices.ContainsFunc(found, func(v violation) bool { return v.Check == want }) {
					t.Errorf("check() = %v, want one of %q", found, want)
				}
			}

			if slices.Contains(c.by, checkLinear) {
				if _, err := os.Stat(folder + "/history-0.html"); err != nil {
					t.Errorf("no picture: %v", err)
				}
			}
		})
	}
}

// What may end a connection-held lock excuses an overlap, and not for longer than a lease.
func TestCheckExcusesConnectionHeldLocks(t *testing.T) {
	t.Parallel()

	ended := func(strategy string) *history {
		h := orderly()
		h.Pair.Strategy = strategy
		h.grants[1].call, h.grants[1].ret = ms(30), ms(60)
		h.disturbances = []disturbance{{Start: ms(50), End: ms(55), Fault: FaultSession, Process: -1}}

		return h
	}

	if found, _ := check(ended("advisory"), t.TempDir()); len(found) > 0 {
		t.Errorf("check() = %v, want nothing", found)
	}

	if found, _ := check(ended("cas"), t.TempDir()); len(found) == 0 {
		t.Error("check() = nothing, for a lease that a session's end must not touch")
	}

	h := ended("advisory")
	h.grants[0].told = append(h.grants[0].told, ms(1600))

	if found, _ := check(h, t.TempDir()); len(found) == 0 {
		t.Error("check() = nothing, for a lock that said it was held more than a lease after its session had ended")
	}
}

func TestPlanIsRepeatable(t *testing.T) {
	t.Parallel()

	draw := func(seed uint64) plan {
		s := DefaultSettings()
		s.Pair, s.Faults = Pair{"postgres", "cas"}, Faults()

		return newPlan(seed, s)
	}

	first, second := draw(7), draw(7)
	if !slices.Equal(first.strokes, second.strokes) || !slices.Equal(first.workers, second.workers) {
		t.Error("one seed made two plans")
	}

	if slices.Equal(first.strokes, draw(9).strokes) {
		t.Error("two seeds made one plan")
	}

	// In a mix two of them strike at a time, from the first half on.
	s := DefaultSettings()
	s.Pair, s.Faults = Pair{"postgres", "cas"}, Faults()

	together := 0

	for seed := uint64(1); seed < 100; seed += 2 {
		strokes := newPlan(seed, s).strokes
		for i, stroke := range strokes[:len(strokes)/2] {
			if strokes[i+1].at < stroke.at+stroke.duration {
				together++
			}
		}
	}

	if together < 100 {
		t.Errorf("%d faults of 50 mixed rounds strike beside another in the first half, want 100 or more", together)
	}

	// Every kind has a round of its own within so many.
	alone := map[Fault]bool{}

	for seed := range uint64(2 * len(Faults())) {
		if p := draw(seed); len(p.kinds) == 1 {
			alone[p.kinds[0]] = true

			for _, s := range p.strokes {
				if s.fault != p.kinds[0] {
					t.Errorf("seed %d: %q strikes in a round of %q", seed, s.fault, p.kinds[0])
				}
			}
		}
	}

	if len(alone) != len(Faults()) {
		t.Errorf("%d kinds of faults strike alone, want all %d", len(alone), len(Faults()))
	}
}

func TestParse(t *testing.T) {
	t.Parallel()

	engines := []string{"postgres", "sqlite"}

	if pairs, err := ParsePairs("sqlite, postgres/cas,sqlite/cas", engines); err != nil || len(pairs) != 3 || pairs[0].String() != "postgres/cas" {
		t.Errorf("ParsePairs() = %v, %v", pairs, err)
	}

	for _, text := range []string{"mysql", "sqlite/advisory", "postgres/"} {
		if pairs, err := ParsePairs(text, engines); err == nil {
			t.Errorf("ParsePairs(%q) = %v, want an error", text, pairs)
		}
	}

	if faults, err := ParseFaults("kill, lost reply"); err != nil || len(faults) != 2 {
		t.Errorf("ParseFaults() = %v, %v", faults, err)
	}

	if faults, err := ParseFaults("rain"); err == nil {
		t.Errorf("ParseFaults(%q) = %v, want an error", "rain", faults)
	}
}
