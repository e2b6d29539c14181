package scenarios_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
	"github.com/sqllock/sqllock/bench/internal/servers"
)

// TestAll finds mistakes that would show only after minutes.
func TestAll(t *testing.T) {
	t.Parallel()

	seen, figures := make(map[string]bool), make(map[string]bool)

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

		if s.Plot != "" && !slices.ContainsFunc(s.Columns, func(c report.Column) bool { return c.Title == s.Plot }) {
			t.Errorf("%s draws %q, which is none of its columns", s.Name, s.Plot)
		}

		for _, target := range s.Targets {
			c, ok := contest.Find(target.Server + "/" + target.Name)
			if !ok || !s.Takes(c) {
				t.Errorf("%s has a target for %s on %s, which takes no part", s.Name, target.Name, target.Server)
			}

			against, ok := contest.Find(target.AgainstServer + "/" + target.Against)
			if target.Against != "" && (!ok || !s.Takes(against)) {
				t.Errorf("%s has a target against %s on %s, which takes no part", s.Name, target.Against, target.AgainstServer)
			}

			// The document has all of them in one table.
			figure := target.Server + ": " + target.Name + ": " + target.Title + " of " + target.Against
			if figures[figure] {
				t.Errorf("there are two targets %q", figure)
			}

			figures[figure] = true

			if target.Bound.Value <= 0 {
				t.Errorf("%s has a target for %s on %s without a bound", s.Name, target.Name, target.Server)
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

// TestFaster checks the way in which a target over an older revision is turned:
// a time shrinks, and a rate grows.
func TestFaster(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		scenario, name, server, want string
	}{
		{"pair", contest.ForUpdate, "postgres", "≤ 1.35× of floor: one committed update, one SELECT 1 (2.5 times as fast as revision 50b306a, which had 3.37×)"},
		{"own32", contest.Insert, "mysql", "≥ 1.23× of floor: two committed updates (2.5 times as fast as revision 50b306a, which had 0.491×)"},
		{"own256", contest.Insert, "postgres", "≥ 1.80× of floor: one committed update, one SELECT 1 (4 times as fast as revision 50b306a, which had 0.450×)"},
	} {
		found := false

		for _, s := range scenarios.All() {
			for _, target := range s.Targets {
				if s.Name != test.scenario || target.Name != test.name || target.Server != test.server {
					continue
				}

				found = true

				if got := report.Verdicts([]report.Verdict{{Target: target}}); !strings.Contains(got, "| "+test.want+" |") {
					t.Errorf("%s asks of %s on %s:\n%s\nwant %s", test.scenario, test.name, test.server, got, test.want)
				}
			}
		}

		if !found {
			t.Errorf("%s has no target for %s on %s", test.scenario, test.name, test.server)
		}
	}
}

func TestDrawn(t *testing.T) {
	t.Parallel()

	for id, want := range map[string]string{
		"postgres/sqllock cas":                        "sqllock cas",
		"postgres/sqllock cas, unbatched":             "",
		"postgres/" + contest.FloorUpdateAndRoundTrip: "floor",
		"mysql/" + contest.FloorUpdateAndRoundTrip:    "",
		"mysql/" + contest.FloorTwoUpdates:            "floor",
		"postgres/" + contest.FloorStatements:         "",
		"mariadb/" + contest.GetLockByHand:            contest.GetLockByHand,
	} {
		c, ok := contest.Find(id)
		if !ok {
			t.Errorf("there is no contestant %s", id)

			continue
		}

		label, family, drawn := scenarios.Drawn(c)
		if drawn != (want != "") || drawn && label != want {
			t.Errorf("Drawn(%s) = %q, %v; want %q", id, label, drawn, want)
		}

		if ours := c.Group == contest.Library; ours != (family == report.Ours) {
			t.Errorf("Drawn(%s) has family %v", id, family)
		}
	}
}
