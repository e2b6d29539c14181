package reach_test

import (
	"testing"

	"github.com/sqllock/sqllock/test/doctor"
)

// TestDoctor: the command tells a cluster from one server, and which of its nodes take writes.
//
//nolint:paralleltest // one cluster after the other, each of which needs the machine
func TestDoctor(t *testing.T) {
	on(t, all, func(t *testing.T, s site) {
		t.Helper()

		program, primary := doctor.Build(t), s.primary(t)

		for _, n := range s.nodes {
			found := doctor.Examine(t, program, n.url)
			takesWrites := s.several || n.number == primary.number

			if got := found[s.check]; takesWrites && got != s.found {
				t.Errorf("node %d: the doctor says %q of its %s, want %q", n.number, got, s.check, s.found)
			}

			if got := found["writable"]; (got == "ok") != takesWrites {
				t.Errorf("node %d: the doctor says %q of writing, and it takes writes: %t", n.number, got, takesWrites)
			}
		}
	})
}
