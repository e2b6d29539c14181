package shared_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/test/model/shared"
)

var (
	two     = shared.Scope{Name: "two readers", Leases: []int8{2, 1, 1}, Readers: 2, Rounds: 1, Forced: true}
	three   = shared.Scope{Name: "three readers", Leases: []int8{1, 1, 1, 1}, Readers: 3, Rounds: 1, Prompt: true}
	writers = shared.Scope{Name: "two writers", Leases: []int8{1, 1, 1, 1}, Readers: 2, Rounds: 1}
	lost    = shared.Scope{Name: "lost answers", Leases: []int8{1, 2, 1}, Readers: 2, Rounds: 1, Unanswered: 1}
	prompt  = shared.Scope{Name: "three leases", Leases: []int8{3, 2, 1}, Readers: 3, Rounds: 1, Deaths: 1, Prompt: true}
)

// TestProtocol: the statements of the library keep all promises.
func TestProtocol(t *testing.T) {
	t.Parallel()

	for _, scope := range []shared.Scope{two, three, writers, lost, prompt} {
		t.Run(scope.Name, func(t *testing.T) {
			t.Parallel()

			r := shared.Protocol{Scope: scope}.Search()
			t.Logf("%d states, up to %d steps from the start", r.States, r.Depth)

			if r.Broken != "" {
				t.Errorf("%s:\n%s", r.Broken, strings.Join(r.Trace, "\n"))
			}
		})
	}
}

// TestFaults: the search finds what is wrong with others.
func TestFaults(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		fault  shared.Fault
		name   string
		scope  shared.Scope
		broken string
	}{
		{shared.JoinBeforeEnter, "join before enter", two, shared.OneWriter},
		{shared.EndUncompared, "end uncompared", two, shared.OneWriter},
		{shared.EndInOneStatement, "end in one statement", two, shared.OneWriter},
		{shared.WriterLooks, "writer looks", two, shared.OneWriter},
		{shared.JoinsReadLate, "joins read late", two, shared.OneWriter},
		{shared.ProlongBeforeKeep, "prolong before keep", two, shared.OneWriter},
		{shared.ProlongUncounted, "prolong uncounted", two, shared.OneWriter},
		{shared.ShortenLengthens, "shorten lengthens", prompt, shared.ShortBlocked},
		{shared.PhaseOfOwner, "phase of owner", lost, shared.TokensGrow},
		{shared.NeverShortened, "never shortened", prompt, shared.ShortBlocked},
		{shared.LeaveBeforePhase, "leave before phase", three, shared.FalseLoss},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			r := shared.Protocol{Fault: c.fault, Scope: c.scope}.Search()
			t.Logf("%d states, then %s:\n%s", r.States, r.Broken, strings.Join(r.Trace, "\n"))

			if r.Broken != c.broken {
				t.Errorf("found %q, want %q", r.Broken, c.broken)
			}
		})
	}
}
