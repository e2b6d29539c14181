//go:build unix

package stress

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// queued is a history in which one holds the name, and three of other processes come into line behind it, of whom the
// second gives up. Each of the others has it for 10 ms.
func queued() *history {
	h := &history{
		Settings: Settings{Pair: Pair{"postgres", "cas"}, Names: []string{"a"}, Lease: time.Second},
		counts:   map[operation]int{},
		grants:   []*grant{{name: "a", owner: "0", token: 10, call: ms(0), ret: ms(5), until: ms(985), freeing: ms(99), released: ms(100)}},
		served:   []served{{name: "a", token: 10, came: ms(0), ret: ms(5)}},
	}

	for i := 1; i <= 3; i++ {
		w := &wait{
			name: "a", stander: stander{process: i}, from: ms(10 * i), in: ms(10*i + 5), until: ms(90 + 20*i), left: never, token: int64(10 + 10*i),
			granted: ms(92 + 20*i),
		}
		h.waits = append(h.waits, w)

		if i == 2 {
			w.token, w.granted, w.left = 0, 0, w.until+ms(1)

			continue
		}

		h.grant(w)
	}

	return h
}

// grant has w granted the name, for 10 ms.
func (h *history) grant(w *wait) {
	h.served = append(h.served, served{name: w.name, token: w.token, stander: w.stander, came: w.from, ret: w.granted})
	h.grants = append(h.grants, &grant{
		name: w.name, owner: "of " + w.String(), token: w.token, process: w.process, call: w.from, ret: w.granted, until: w.granted + ms(985),
		freeing: w.granted + ms(9), released: w.granted + ms(10),
	})
}

func TestOrderAccepts(t *testing.T) {
	t.Parallel()

	cases := map[string]func(h *history){
		"in the order of arrival": func(*history) {},
		"one who came at the same time": func(h *history) {
			h.waits[0].token, h.waits[2].token = 40, 20
			h.served[1].token, h.served[2].token = 40, 20
			h.waits[2].from = h.waits[0].in - 1
			h.served[2].came = h.waits[2].from
		},
		"one after another has begun to leave": func(h *history) { h.waits[1].until = h.served[2].ret },
		"another of the same locker":           func(h *history) { h.swap(); h.served[2].stander = h.waits[0].stander },
		"one whose place is not known":         func(h *history) { h.swap(); h.served[2].came = 0 },
		"a fault that strikes one of them": func(h *history) {
			h.swap()
			h.disturbances = []disturbance{{Start: ms(20), End: ms(25), Fault: FaultPause, Process: 1}}
		},
		"a fault of the server, a while ago": func(h *history) {
			h.swap()
			h.disturbances = []disturbance{{Start: -ms(2000), End: -ms(1000), Fault: FaultFreeze, Process: -1}}
		},
		"a stall of the machine": func(h *history) { h.swap(); h.waits[0].from, h.stalls = -ms(1500), []span{{-ms(1400), -ms(300)}} },
	}

	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			h := queued()
			c(h)

			var counted tally

			if h.checkOrder(&counted); counted.Disordered != 0 || len(h.checkIdle("a", h.grantsOf("a"), &counted)) > 0 {
				t.Errorf("%d grants are out of order, want none", counted.Disordered)
			}
		})
	}
}

// swap has the last in line granted the name first.
func (h *history) swap() {
	first, last := h.waits[0], h.waits[2]
	first.token, last.token = last.token, first.token
	h.served[1].token, h.served[2].token = first.token, last.token
}

func TestOrderCounts(t *testing.T) {
	t.Parallel()

	cases := map[string]struct {
		spoil                 func(h *history)
		contested, disordered int
	}{
		"nothing wrong":             {func(*history) {}, 1, 0},
		"the last in line at first": {(*history).swap, 2, 1},
		"one before another that gives up later": {
			func(h *history) { h.waits[1].until = h.served[2].ret + 1 }, 2, 1,
		},
		"a newcomer": {
			func(h *history) {
				h.served = append(h.served, served{name: "a", token: 15, stander: stander{process: 0}, came: ms(102), ret: ms(104)})
			},
			2, 1,
		},
		"a fault that strikes others": {
			func(h *history) {
				h.swap()
				h.disturbances = []disturbance{{Start: ms(20), End: ms(25), Fault: FaultPause, Process: 0}}
			},
			2, 1,
		},
		"a fault long ago": {
			func(h *history) {
				h.swap()
				h.disturbances = []disturbance{{Start: -ms(6000), End: -ms(5000), Fault: FaultFreeze, Process: -1}}
			},
			2, 1,
		},
		"a short stall of the machine": {
			func(h *history) { h.swap(); h.stalls = []span{{-ms(800), ms(100)}} }, 2, 1,
		},
		"a death": {
			func(h *history) {
				h.swap()
				h.disturbances = []disturbance{{Start: ms(20), End: ms(25), Fault: FaultKill, Process: 0}}
			},
			2, 1,
		},
	}

	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			h := queued()
			c.spoil(h)

			var counted tally

			h.checkOrder(&counted)

			if counted.Contested != c.contested || counted.Disordered != c.disordered {
				t.Errorf("%d of %d grants are out of order, want %d of %d", counted.Disordered, counted.Contested, c.disordered, c.contested)
			}
		})
	}
}

// A few grants out of order are none of the checks' business, a share is, and so is one who is overtaken often.
func TestOrderFinds(t *testing.T) {
	t.Parallel()

	rounds := func(n, bad int) *history {
		all := queued()
		all.waits, all.served = nil, nil

		for i := range n {
			h := queued()
			if i < bad {
				h.swap()
			}

			for _, w := range h.waits {
				shift := ms(1000 * i)
				w.from, w.in, w.until = w.from+shift, w.in+shift, w.until+shift

				if w.token != 0 {
					w.token += int64(1000 * i)
				}
			}

			for _, g := range h.served {
				g.came, g.ret, g.token = g.came+ms(1000*i), g.ret+ms(1000*i), g.token+int64(1000*i)
				all.served = append(all.served, g)
			}

			all.waits = append(all.waits, h.waits...)
		}

		return all
	}

	if found := rounds(100, 15).checkOrder(new(tally)); len(found) > 0 {
		t.Errorf("checkOrder() = %v, want nothing for 15 of 115", found)
	}

	found := rounds(100, 20).checkOrder(new(tally))
	if len(found) != 1 || !strings.HasPrefix(found[0].Text, "20 of 120 ") {
		t.Errorf("checkOrder() = %v, want one for 20 of 120", found)
	}

	h := rounds(1000, 0)
	h.waits[0].token, h.served[1].token = 1_000_000, 1_000_000

	found = h.checkOrder(new(tally))
	if !slices.ContainsFunc(found, func(v violation) bool { return v.Name == "a" }) {
		t.Errorf("checkOrder() = %v, want one for who was overtaken", found)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()

	// The last in line is granted the name so late.
	late := func(ms instant) func(h *history) {
		return func(h *history) {
			h.waits[2].until += ms
			h.waits[2].granted += ms
			h.served[2].ret += ms
			h.grants[2].ret += ms
			h.grants[2].until += ms
		}
	}

	cases := map[string]struct {
		spoil func(h *history)
		found int
	}{
		"in time":                             {late(ms(3900)), 0},
		"late":                                {late(ms(4100)), 1},
		"nobody waits":                        {func(h *history) { late(ms(4100))(h); h.waits[2].in, h.waits[1].until = ms(2001), ms(2000) }, 0},
		"others wait, one after another":      {func(h *history) { late(ms(4100))(h); h.waits[2].in, h.waits[1].until = ms(2000), ms(2001) }, 1},
		"it is held":                          {func(h *history) { late(ms(4100))(h); h.grants[1].released = ms(2000) }, 0},
		"one in line has died":                {func(h *history) { late(ms(4100))(h); h.dead = []dead{{"a", ms(50)}} }, 0},
		"one has not left":                    {func(h *history) { late(ms(4100))(h); h.waits[1].left = ms(1000) }, 0},
		"one has not left for long":           {func(h *history) { late(ms(7500))(h); h.waits[1].left = never }, 1},
		"the first in line has no connection": {func(h *history) { late(ms(4100))(h); h.crowded = []int{3} }, 0},
		"the second in line has no connection": {
			func(h *history) {
				late(ms(4200))(h)
				h.waits[1].until, h.waits[1].left, h.crowded = ms(4150), ms(4151), []int{3}
			},
			1,
		},
		"one has died, long ago":       {func(h *history) { late(ms(4100))(h); h.dead = []dead{{"a", -ms(3000)}} }, 1},
		"one in another line has died": {func(h *history) { late(ms(4100))(h); h.dead = []dead{{"b", ms(50)}} }, 1},
		"the machine stalls":           {func(h *history) { late(ms(4100))(h); h.stalls = []span{{ms(1000), ms(1600)}} }, 0},
		"a fault": {
			func(h *history) {
				late(ms(4100))(h)
				h.disturbances = []disturbance{{Start: ms(500), End: ms(600), Fault: FaultPause, Process: 3}}
			},
			0,
		},
		"a grant that nobody learned of": {
			func(h *history) {
				late(ms(4900))(h)
				h.served = append(h.served, served{name: "a", token: 35, ret: ms(150)})
			},
			0,
		},
	}

	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()

			h := queued()
			c.spoil(h)

			var counted tally

			if found := h.checkIdle("a", h.grantsOf("a"), &counted); len(found) != c.found {
				t.Errorf("checkIdle() = %v, want %d; %s idle", found, c.found, counted.Idle)
			}
		})
	}
}

// What a worker wrote down of a line, as it is read back.
func TestLineRecords(t *testing.T) {
	t.Parallel()

	h := &history{
		Settings: Settings{Names: []string{"a"}}, counts: map[operation]int{},
		disturbances: []disturbance{{Start: ms(100), End: ms(101), Fault: FaultKill, Process: 1, Life: 2}},
	}

	line := func(t int, p phase, id int64, wait string, token int64, began int) record {
		return record{Time: ms(t), Op: opLine, Phase: p, ID: id, Name: "a", Wait: wait, Token: token, Began: ms(began)}
	}
	acquire := func(t int, p phase, id int64, o outcome) record {
		return record{Time: ms(t), Op: opAcquire, Phase: p, ID: id, Name: "a", Outcome: o}
	}

	h.addRecords(1, 2, []record{
		acquire(1, phaseCall, 1, ""), line(5, phaseEnter, 1, "granted", 0, 4),
		line(20, phaseGrant, 0, "granted", 7, 18), acquire(21, phaseReturn, 1, outcomeOK),
		acquire(22, phaseCall, 2, ""), line(25, phaseEnter, 2, "gives up", 0, 24),
		acquire(30, phaseReturn, 2, outcomeNo), line(31, phaseLeave, 0, "gives up", 0, 0),
		acquire(32, phaseCall, 3, ""), line(35, phaseEnter, 3, "leaves before", 0, 34),
		line(36, phaseLeave, 0, "leaves before", 0, 0), acquire(40, phaseReturn, 3, outcomeNo),
		acquire(42, phaseCall, 4, ""), line(45, phaseEnter, 4, "granted too late", 0, 44),
		acquire(50, phaseReturn, 4, outcomeUnknown), line(52, phaseGrant, 0, "granted too late", 8, 49),
		line(60, phaseGrant, 0, "", 9, 55), line(61, phaseGrant, 0, "unheard of", 10, 58),
		acquire(92, phaseCall, 5, ""), line(95, phaseEnter, 5, "killed", 0, 94),
	})

	want := map[string]struct {
		until instant
		token int64
	}{
		"granted": {ms(18), 7}, "gives up": {ms(30), 0}, "leaves before": {ms(36), 0}, "granted too late": {ms(49), 0}, "killed": {ms(100), 0},
	}

	if len(h.waits) != len(want) {
		t.Errorf("%d waits, want %d", len(h.waits), len(want))
	}

	for _, w := range h.waits {
		if w.until != want[w.id].until || w.token != want[w.id].token || w.process != 1 || w.life != 2 {
			t.Errorf("wait %q of %s: until %d with token %d, want %v", w.id, w, w.until, w.token, want[w.id])
		}
	}

	var came []instant
	for _, g := range h.served {
		came = append(came, g.came)
	}

	if wanted := []instant{ms(4), ms(44), ms(55), 0}; !slices.Equal(came, wanted) {
		t.Errorf("those granted came at %v, want %v", came, wanted)
	}

	if len(h.dead) != 1 || h.dead[0] != (dead{"a", ms(100)}) {
		t.Errorf("dead: %v, want one at %d", h.dead, ms(100))
	}
}
