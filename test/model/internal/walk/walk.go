// Package walk visits all states of a model.
package walk

import "slices"

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

// Model is what can be searched: states of type S, and steps of type T between them.
type Model[S comparable, T any] struct {
	// Each lists all steps from a state, with the promise that is broken on the way.
	Each func(from S, emit func(step T, next S, broken string))
	// Check returns the promise that is broken in a state from which so many steps go on.
	Check func(s S, steps int) string
	// Line is a line of a trace.
	Line func(step T, next S) string
}

// Search visits every state that can be reached from start, the nearest first, until one
// breaks a promise.
func (m Model[S, T]) Search(start S) Result {
	var (
		order  = []S{start}
		parent = []int32{0}
		seen   = map[S]struct{}{start: {}}
		ends   = []int{1} // where in order each depth ends
		result Result
	)

	for at := 0; at < len(order) && result.Broken == ""; at++ {
		if at == ends[len(ends)-1] {
			ends = append(ends, len(order))
		}

		var (
			steps int
			last  []S // what broke a promise on the way to it
		)

		m.Each(order[at], func(_ T, next S, why string) {
			steps++

			if why != "" && result.Broken == "" {
				result.Broken, last = why, []S{next}
			}

			if _, ok := seen[next]; !ok && result.Broken == "" {
				seen[next] = struct{}{}
				order = append(order, next)
				parent = append(parent, int32(at))
			}
		})

		if result.Broken == "" {
			result.Broken = m.Check(order[at], steps)
		}

		if result.Broken != "" {
			result.Trace = m.trace(append(path(order, parent, at), last...))
		}
	}

	result.States, result.Depth = len(seen), len(ends)-1

	return result
}

// path is the way from the start to the state at an index.
func path[S any](order []S, parent []int32, at int) (states []S) {
	for ; at != 0; at = int(parent[at]) {
		states = append(states, order[at])
	}

	states = append(states, order[0])
	slices.Reverse(states)

	return states
}

// trace tells the steps between states.
func (m Model[S, T]) trace(states []S) (lines []string) {
	for i := 1; i < len(states); i++ {
		found := false

		m.Each(states[i-1], func(step T, next S, _ string) {
			if next == states[i] && !found {
				found = true

				lines = append(lines, m.Line(step, next))
			}
		})
	}

	return lines
}
