package model

import "fmt"

// The promises that the search checks, as docs/guarantees.md makes them.
const (
	OneAtATime    = "two clients trust their locks at the same time"
	NotTold       = "a name was granted while the holder before still trusted its lock"
	TokensGrow    = "a grant has a token that is not larger than that of an earlier grant"
	TokenKept     = "a holder's token is not that of its grant"
	OwnGrantOnly  = "a late handle touched the grant of its successor"
	NoStaleCommit = "a guarded transaction was committed after a later grant"
	LossIsFinal   = "a lock that was lost is held again"
	FreeInALease  = "a name is still taken a lease after all clients stopped"
	NoDeadlock    = "nothing can happen any more"
)

// Result is what a search found.
type Result struct {
	// States is how many different ones were reached, and Depth how many steps
	// the farthest is from the start.
	States, Depth int
	// Broken is the promise that a state breaks; empty if none does.
	Broken string
	// Trace is the shortest way there, a line for each step.
	Trace []string
}

// Search visits every state that the protocol can reach, the nearest first, until
// one breaks a promise.
func (p Protocol) Search() Result {
	var (
		start  = state{}
		order  = []state{start}
		parent = []int32{0}
		seen   = map[state]struct{}{start: {}}
		result Result
		ends   = []int{1} // where in order each depth ends
	)

	for at := 0; at < len(order); at++ {
		if at == ends[len(ends)-1] {
			ends = append(ends, len(order))
		}

		steps, broken := 0, ""

		var last state

		visit := func(_ step, next state, why string) {
			steps++

			if why != "" && broken == "" {
				broken, last = why, next
			}

			if _, ok := seen[next]; !ok && broken == "" {
				seen[next] = struct{}{}
				order = append(order, next)
				parent = append(parent, int32(at))
			}
		}
		p.each(order[at], visit)

		switch {
		case broken != "":
			order, parent = append(order, last), append(parent, int32(at))
		case steps == 0 && order[at].now < p.Scope.Horizon:
			broken = NoDeadlock
		case !p.freed(order[at]):
			broken = FreeInALease
		default:
			continue
		}

		result.Broken = broken
		result.Trace = p.trace(order, parent, at, broken == NoDeadlock || broken == FreeInALease)

		break
	}

	result.States, result.Depth = len(seen), len(ends)-1

	return result
}

// each lists all steps from a state.
func (p Protocol) each(s state, emit emit) {
	p.world(s, emit)

	for i := range int8(clients) {
		p.client(s, i, emit)
	}
}

// trace tells the way to the state at an index, or to the last one after it.
func (p Protocol) trace(order []state, parent []int32, at int, ends bool) (lines []string) {
	path := []state{order[at]}
	if !ends {
		path = append(path, order[len(order)-1])
	}

	for at != 0 {
		at = int(parent[at])
		path = append([]state{order[at]}, path...)
	}

	for i := 1; i < len(path); i++ {
		found := false

		p.each(path[i-1], func(st step, next state, _ string) {
			if next == path[i] && !found {
				found = true

				lines = append(lines, fmt.Sprintf("%-2s %-34s %s", who(st.who), st.what+" "+st.kind.String(), &next))
			}
		})
	}

	return lines
}
