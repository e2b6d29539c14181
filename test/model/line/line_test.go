package line_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/test/model/line"
)

// TestProtocol checks that both variants of the line keep its promises whatever happens.
func TestProtocol(t *testing.T) {
	t.Parallel()

	for _, variant := range []line.Variant{line.OneStatement, line.TwoStatements} {
		for _, scope := range []line.Scope{
			line.Told, line.Again, line.Seen, line.Unsure, line.Noted, line.Napped,
			line.Leaves, line.Dies, line.Stops, line.Slow, line.Delayed, line.Behind, line.Newer,
		} {
			t.Run(variant.String()+"/"+scope.Name, func(t *testing.T) {
				t.Parallel()

				r := line.Protocol{Variant: variant, Scope: scope}.Search()
				t.Logf("%d states, up to %d steps from the start", r.States, r.Depth)

				if r.Broken != "" {
					t.Errorf("%s:\n%s", r.Broken, strings.Join(r.Trace, "\n"))
				}
			})
		}
	}
}

// TestFaults checks that the search finds every fault, by the promise that it breaks.
func TestFaults(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		fault   line.Fault
		name    string
		variant line.Variant
		scope   line.Scope
		broken  string
	}{
		{line.HeadSkipped, "head skipped", line.OneStatement, line.Told, line.FirstComeFirstServed},
		{line.HeadSkipped, "head skipped by a call", line.TwoStatements, line.Told, line.WakeUp},
		{line.DeafUntilAnswer, "deaf until the answer", line.OneStatement, line.Told, line.WakeUp},
		{line.SleepsUnseen, "sleeps unseen", line.OneStatement, line.Told, line.WakeUp},
		{line.SleepsUnseen, "sleeps unseen after two statements", line.TwoStatements, line.Seen, line.WakeUp},
		{line.DeadHeadCounts, "dead head counts", line.OneStatement, line.Dies, line.FreeForLong},
		{line.DeadHeadCounts, "dead head counts after two statements", line.TwoStatements, line.Dies, line.FreeForLong},
		{line.NewcomerOvertakes, "newcomer overtakes", line.OneStatement, line.Told, line.FirstComeFirstServed},
		{line.NewcomerOvertakes, "newcomer overtakes after two statements", line.TwoStatements, line.Seen, line.FirstComeFirstServed},
		{line.TurnIsGrant, "turn is grant", line.OneStatement, line.Leaves, line.OneHolder},
		{line.ZeroWithoutCompare, "zero without compare", line.OneStatement, line.Told, line.NobodyIsForgotten},
		{line.ForgetsYoung, "forgets a young number", line.TwoStatements, line.Newer, line.NobodyIsForgotten},
		{line.NumberForEver, "number for ever", line.OneStatement, line.Seen, line.NumberGoesBack},
		{line.EntryAfterNumber, "entry after the number", line.TwoStatements, line.Stops, line.NobodyIsForgotten},
		{line.GrantedWaitCounts, "granted wait counts", line.TwoStatements, line.Told, line.WakeUp},
		{line.LeavesSilently, "leaves silently", line.OneStatement, line.Told, line.WakeUp},
		{line.LeavesSilently, "leaves silently, without a call", line.TwoStatements, line.Told, line.WakeUp},
		{line.NapWithoutLook, "nap without a look", line.TwoStatements, line.Napped, line.WakeUp},
		{line.CallsByID, "calls by id", line.TwoStatements, line.Leaves, line.SleepersOnly},
		{line.TurnForAnyWait, "turn for any wait", line.OneStatement, line.Again, line.FirstComeFirstServed},
		{line.LateTurnDropped, "late turn dropped", line.OneStatement, line.Seen, line.WakeUp},
		{line.PassesOnlyKnown, "passes on only what it knows of", line.TwoStatements, line.Told, line.WakeUp},
		{line.AloneUnderYoung, "alone under a young number", line.TwoStatements, line.Delayed, line.NobodyIsForgotten},
		{line.NoteUnheard, "note unheard", line.TwoStatements, line.Noted, line.WakeUp},
		{line.CrowdOfOne, "a crowd of one", line.OneStatement, line.Told, line.NobodyIsForgotten},
		{line.UnnamedEnds, "wait that was not named ends", line.OneStatement, line.Unsure, line.WakeUp},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			r := line.Protocol{Variant: c.variant, Fault: c.fault, Scope: c.scope}.Search()
			t.Logf("%d states, then %s:\n%s", r.States, r.Broken, strings.Join(r.Trace, "\n"))

			if r.Broken != c.broken {
				t.Errorf("found %q, want %q", r.Broken, c.broken)
			}
		})
	}
}

// TestLimits shows what the line does not promise, each in the shortest way there. If the protocol comes to
// promise it, this fails, and the limit goes.
func TestLimits(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		variant line.Variant
		scope   line.Scope
		broken  string
	}{
		{"turn that is slow", line.TwoStatements, line.Slower, line.NobodyIsForgotten},
		{"place handed on without the turn", line.OneStatement, line.Handed, line.WakeUp},
		{"place handed on without the turn, after two statements", line.TwoStatements, line.Handed, line.WakeUp},
		{"left after the release", line.TwoStatements, line.Unswept, line.WakeUp},
		{"line that moves while one enters", line.OneStatement, line.Crowded, line.NobodyIsForgotten},
		{"row locked by a grant", line.TwoStatements, line.Locked, line.NobodyIsForgotten},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			r := line.Protocol{Variant: c.variant, Scope: c.scope}.Search()
			t.Logf("%d states, then %s:\n%s", r.States, r.Broken, strings.Join(r.Trace, "\n"))

			if r.Broken != c.broken {
				t.Errorf("found %q, want %q", r.Broken, c.broken)
			}
		})
	}
}
