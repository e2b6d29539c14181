package failover_test

import (
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/test/doctor"
	"github.com/sqllock/sqllock/test/servers"
)

// TestDoctor: the command tells a standby from a primary, and what a fail-over to
// the standby would forget.
func TestDoctor(t *testing.T) {
	t.Parallel()

	program := doctor.Build(t)

	for _, c := range []struct {
		name        string
		replication servers.Replication
		primary     string // what is found about its replication
	}{
		{"asynchronous", servers.Asynchronous, "note"},
		{"synchronous", servers.Synchronous, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			pair := start(t, c.replication)

			if got := doctor.Examine(t, program, pair.PrimaryDSN())["replication"]; got != c.primary {
				t.Errorf("doctor of the primary says of replication: %q, want %q", got, c.primary)
			}

			if got := doctor.Examine(t, program, pair.StandbyDSN())["writable"]; got != "error" {
				t.Errorf("doctor of the standby says of writing: %q, want an error", got)
			}

			lookAtStandby(t, program, pair)
		})
	}
}

// lookAtStandby lists locks where none can be acquired.
func lookAtStandby(t *testing.T, program string, pair cluster) {
	t.Helper()

	command := func(dsn string, args ...string) (said string, code int) {
		c := osexec.CommandContext(t.Context(), program, args...)
		c.Env = append(c.Environ(), "DATABASE_URL="+dsn)
		out, _ := c.CombinedOutput()

		return string(out), c.ProcessState.ExitCode()
	}

	for _, args := range [][]string{{"migrate", "up"}, {"run", "--name", "n", "--min-hold", "1h", "--", "true"}} {
		if said, code := command(pair.PrimaryDSN(), args...); code != 0 {
			t.Fatalf("sqllock %s at the primary exited with %d: %s", strings.Join(args, " "), code, said)
		}
	}

	do(t, "catch up", pair.CaughtUp)

	if said, code := command(pair.StandbyDSN(), "ls"); code != 0 {
		t.Errorf("sqllock ls at the standby exited with %d: %s", code, said)
	}

	if said, code := command(pair.StandbyDSN(), "show", "n"); code != 1 || !strings.Contains(said, "minimum hold") {
		t.Errorf("sqllock show n at the standby exited with %d: %s", code, said)
	}

	if said, code := command(pair.StandbyDSN(), "run", "--name", "m", "--", "true"); code != 69 || !strings.Contains(said, "standby") {
		t.Errorf("sqllock run at the standby exited with %d: %s", code, said)
	}
}
