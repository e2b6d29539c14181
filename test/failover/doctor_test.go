package failover_test

import (
	"bytes"
	"encoding/json"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/sqllock/sqllock/test/servers"
)

// TestDoctor: the command tells a standby from a primary, and what a fail-over to
// the standby would forget.
func TestDoctor(t *testing.T) {
	t.Parallel()

	program := filepath.Join(t.TempDir(), "sqllock")

	build := osexec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "sqllock")

	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}

	for _, c := range []struct {
		name        string
		replication servers.Replication
		primary     string // what is found about its replication
	}{
		{"asynchronous", servers.Asynchronous, "warning"},
		{"synchronous", servers.Synchronous, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			pair := start(t, c.replication)

			if got := examine(t, program, pair.PrimaryDSN())["replication"]; got != c.primary {
				t.Errorf("doctor of the primary says of replication: %q, want %q", got, c.primary)
			}

			if got := examine(t, program, pair.StandbyDSN())["writable"]; got != "error" {
				t.Errorf("doctor of the standby says of writing: %q, want an error", got)
			}
		})
	}
}

// examine returns the worst level of each of the doctor's checks.
func examine(t *testing.T, program, dsn string) map[string]string {
	t.Helper()

	var (
		out      bytes.Buffer
		findings []struct{ Check, Level string }
	)

	doctor := osexec.CommandContext(t.Context(), program, "doctor", "--json")
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
