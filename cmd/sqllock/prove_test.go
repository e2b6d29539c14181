package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestProof proves some cases on the databases of the run, and looks that nothing is left of it.
func TestProof(t *testing.T) {
	t.Parallel()

	prove := filepath.Join(t.TempDir(), "sqllock-prove")
	if output, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", prove, "./prove").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, output)
	}

	eachDatabase(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		out, err := exec.CommandContext(ctx, prove, "-dsn", url, "-test.v", "-test.run", "TestProve/cas/two|TestProve/cas/suite/locks/names").CombinedOutput()
		if err != nil {
			t.Fatalf("the proof: %v\n%s", err, out)
		}

		for _, want := range []string{"--- PASS: TestProve/cas/two_processes", "--- PASS: TestProve/cas/suite/locks/names"} {
			if !bytes.Contains(out, []byte(want)) {
				t.Errorf("the proof printed:\n%s\nwant %q in it", out, want)
			}
		}

		_, undo, _ := strings.Cut(string(out), "after a crash, run: ")
		undo, _, _ = strings.Cut(undo, "\n")

		if folder, ok := strings.CutPrefix(undo, "rm -r "); ok {
			if _, err := os.Stat(folder); err == nil {
				t.Errorf("%s is left", folder)
			}
		} else if _, err := openDatabase(t, ctx, url).SQL.ExecContext(ctx, strings.Replace(undo, " IF EXISTS", "", 1)); err == nil {
			t.Errorf("this was still to be done: %s", undo)
		}
	})
}
