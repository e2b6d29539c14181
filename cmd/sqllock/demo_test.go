//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDemo runs examples/demo with this command.
func TestDemo(t *testing.T) {
	t.Parallel()

	cmd := exec.CommandContext(t.Context(), example(t, "demo"))
	cmd.Env = append(os.Environ(), reexec+"=1", "SQLLOCK="+os.Args[0], "DATABASE_URL=")

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demo: %v\n%s", err, out)
	}

	for _, want := range []string{"SIGKILL", "took over", "never two at once"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo printed:\n%s\nwant %q in it", out, want)
		}
	}
}
