// Package doctor has the command sqllock look at databases, for tests.
package doctor

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// Build compiles the command, for a test in a folder of test/, and returns the program.
func Build(t *testing.T) string {
	t.Helper()

	program := filepath.Join(t.TempDir(), "sqllock")

	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "sqllock")

	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}

	return program
}

// Examine returns the last level of each of the doctor's checks.
func Examine(t *testing.T, program, dsn string, args ...string) map[string]string {
	t.Helper()

	var (
		out      bytes.Buffer
		findings []struct{ Check, Level string }
	)

	doctor := exec.CommandContext(t.Context(), program, append([]string{"doctor", "--json"}, args...)...)
	doctor.Env = append(doctor.Environ(), "DATABASE_URL="+dsn)
	doctor.Stdout = &out

	// It exits with 1 for what it finds.
	if err := doctor.Run(); err != nil && doctor.ProcessState.ExitCode() != 1 {
		t.Fatalf("sqllock doctor: %v", err)
	}

	if err := json.Unmarshal(out.Bytes(), &findings); err != nil {
		t.Fatalf("sqllock doctor --json: %v: %s", err, out.String())
	}

	levels := make(map[string]string)
	for _, f := range findings {
		levels[f.Check] = f.Level
	}

	return levels
}
