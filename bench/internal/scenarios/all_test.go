package scenarios_test

import (
	"testing"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
	"github.com/sqllock/sqllock/bench/internal/servers"
)

// TestAll finds mistakes that would show only after minutes.
func TestAll(t *testing.T) {
	t.Parallel()

	seen := make(map[string]bool)

	for _, s := range scenarios.All() {
		if seen[s.Name] {
			t.Errorf("there are two scenarios %s", s.Name)
		}

		seen[s.Name] = true

		takes := 0

		for _, c := range contest.All() {
			if s.Takes(c) {
				takes++
			}
		}

		if takes == 0 {
			t.Errorf("nobody takes part in %s", s.Name)
		}

		for _, plot := range s.Plots {
			if plot >= len(s.Columns) {
				t.Errorf("%s draws column %d of %d", s.Name, plot, len(s.Columns))
			}
		}

		for _, target := range s.Targets {
			c, ok := contest.Find(target.Server + "/" + target.Name)
			if !ok || !s.Takes(c) {
				t.Errorf("%s has a target for %s on %s, which takes no part", s.Name, target.Name, target.Server)
			}
		}
	}
}

func TestContestants(t *testing.T) {
	t.Parallel()

	seen := make(map[string]bool)

	for _, c := range contest.All() {
		if seen[c.ID()] {
			t.Errorf("there are two contestants %s", c.ID())
		}

		seen[c.ID()] = true
	}

	for _, name := range servers.Names() {
		found := false
		for _, c := range contest.All() {
			found = found || c.Server == name
		}

		if !found {
			t.Errorf("nobody is measured on %s", name)
		}
	}
}
