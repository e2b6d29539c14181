package main

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/prove"
)

// TestProvingBar has a bar that fits a wide and a narrow terminal, and says which cases broke a promise.
func TestProvingBar(t *testing.T) {
	t.Parallel()

	p := &proving{total: 100, done: 25, broken: 1, strategy: "cas", outcomes: map[string][]prove.Outcome{
		"cas": {{Case: "guard/passes", Promise: "guard", Verdict: prove.Broken}, {Case: "try/a", Promise: "guard", Verdict: prove.Kept}},
	}}

	for _, c := range []struct {
		width int
		want  string
	}{
		{79, "[#######.......................] 25 of 100 cases, 1m05s, 1 BROKEN, cas"},
		{50, "[##........] 25 of 100 cases, 1m05s, 1 BROKEN, cas"},
		{30, "25 of 100 cases, 1m05s, 1 BRO…"},
	} {
		if got := p.bar(c.width, 65*time.Second); got != c.want {
			t.Errorf("bar(%d) = %q, want %q", c.width, got, c.want)
		}
	}

	if got, want := p.culprits("cas", "guard"), " (guard/passes)"; got != want {
		t.Errorf("culprits() = %q, want %q", got, want)
	}
}
