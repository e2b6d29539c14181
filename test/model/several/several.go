// Package several is a model of those who wait for several names at once, beside those who wait for one, and beside
// those who wait while they hold others. It is searched for states in which nobody gets on though no holder waits for
// another: there nothing would ever be found and ended, see package sqllock's deadlocks.
//
// What is left out is in package line, which has the line of one name: here a turn is told at once and nothing fails.
package several

import (
	"fmt"
	"slices"
	"strings"
)

// Rule says who is not ahead of a waiter that holds other locks.
type Rule int

// The rules. Passing is that of the library.
const (
	// Passing: neither those who want several names, nor those behind them.
	Passing Rule = iota
	// PassingOne: only those who want several names.
	PassingOne
	// PassingNone: everybody who came before is ahead.
	PassingNone
)

// Script is what one client acquires, step by step, while it keeps what it has; at the end it releases all. A step is
// some names, a letter each.
type Script []string

// client is how far one is.
type client struct {
	step    int  // of its script; as many as there are when it has ended
	waiting bool // it stands in the lines of that step
}

// state is that of all clients, and the order in which those came who wait.
type state struct {
	clients []client
	line    []int
}

func (s state) key() string { return fmt.Sprint(s.clients, s.line) }

func (s state) clone() state { return state{slices.Clone(s.clients), slices.Clone(s.line)} }

// model is a search.
type model struct {
	rule    Rule
	scripts []Script
}

// Stuck searches all orders in which clients can do what their scripts say, and returns a state in which some wait for
// ever though no holders wait for each other in a circle; empty if there is none. states is how many there are.
func Stuck(rule Rule, scripts ...Script) (stuck string, states int) {
	m := model{rule, scripts}
	first := state{clients: make([]client, len(scripts))}
	seen := map[string]bool{first.key(): true}

	for open := []state{first}; len(open) > 0; {
		s := open[0]
		open = open[1:]

		next := m.next(s)
		if len(next) == 0 && len(s.line) > 0 && !m.circle(s) {
			return m.describe(s), len(seen)
		}

		for _, n := range next {
			if key := n.key(); !seen[key] {
				seen[key] = true
				open = append(open, n)
			}
		}
	}

	return "", len(seen)
}

// next are the states that can follow.
func (m model) next(s state) (next []state) {
	for i, c := range s.clients {
		n := s.clone()

		switch {
		case c.step > len(m.scripts[i]):
			continue
		case c.waiting && !m.turn(s, i):
			continue
		case c.waiting: // it has its turn, and takes all
			n.clients[i] = client{step: c.step + 1}
			n.line = slices.DeleteFunc(n.line, func(other int) bool { return other == i })
		case c.step == len(m.scripts[i]): // it releases all
			n.clients[i].step++
		default: // it goes to the end of the lines
			n.clients[i].waiting = true
			n.line = append(n.line, i)
		}

		next = append(next, n)
	}

	return next
}

// turn says whether all names that a waiter wants are free, and it is the first in the line of each.
func (m model) turn(s state, i int) bool {
	for _, name := range m.wants(s, i) {
		if m.holder(s, name) >= 0 || m.ahead(s, i, name) {
			return false
		}
	}

	return true
}

// wants are the names of the step in which a client is.
func (m model) wants(s state, i int) string { return m.scripts[i][s.clients[i].step] }

// holds says whether a client holds a name: all steps before are its, until it has released them.
func (m model) holds(s state, i int, name rune) bool {
	step := s.clients[i].step

	return step <= len(m.scripts[i]) && strings.ContainsRune(strings.Join(m.scripts[i][:step], ""), name)
}

// holder is who holds a name; -1 if nobody does.
func (m model) holder(s state, name rune) int {
	for i := range s.clients {
		if m.holds(s, i, name) {
			return i
		}
	}

	return -1
}

// ahead says whether somebody is before a client in the line of a name.
func (m model) ahead(s state, i int, name rune) bool {
	presses := s.clients[i].step > 0

	for _, other := range s.line {
		wanted := m.wants(s, other)

		switch {
		case other == i:
			return false
		case !strings.ContainsRune(wanted, name):
		case presses && len(wanted) > 1 && m.rule == Passing:
			return false
		case presses && len(wanted) > 1 && m.rule == PassingOne:
		default:
			return true
		}
	}

	return false
}

// circle says whether there are holders each of whom waits for what the next one holds.
func (m model) circle(s state) bool {
	var reaches func(from, to int, seen map[int]bool) bool

	reaches = func(from, to int, seen map[int]bool) bool {
		if seen[from] || !s.clients[from].waiting {
			return false
		}

		seen[from] = true

		for _, name := range m.wants(s, from) {
			if holder := m.holder(s, name); holder >= 0 && (holder == to || reaches(holder, to, seen)) {
				return true
			}
		}

		return false
	}

	for i := range s.clients {
		if reaches(i, i, map[int]bool{}) {
			return true
		}
	}

	return false
}

// describe tells a state.
func (m model) describe(s state) string {
	var all []string

	for _, i := range s.line {
		held := strings.Join(m.scripts[i][:s.clients[i].step], "")
		all = append(all, fmt.Sprintf("client %d holds %q and waits for %q", i, held, m.wants(s, i)))
	}

	return strings.Join(all, ", ")
}
