package servers_test

import (
	"testing"

	"github.com/sqllock/sqllock/bench/internal/servers"
)

func TestSince(t *testing.T) {
	t.Parallel()

	before := servers.Statistics{Statements: 10, LogBytes: -1}
	after := servers.Statistics{Statements: 25, LogBytes: 100}

	if got, want := after.Since(before), (servers.Statistics{Statements: 15, LogBytes: -1}); got != want {
		t.Errorf("Since = %+v, want %+v", got, want)
	}
}

func TestStartSaysWhatIsMissing(t *testing.T) {
	t.Setenv("SQLLOCK_TEST_POSTGRES", "")

	set := servers.Start(t.Context(), []string{"postgres", "sqlite"}, t.TempDir())
	defer func() {
		if err := set.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()

	if server, ok := set.Get("postgres"); !ok || server.Missing == "" {
		t.Errorf("postgres without a DSN = %+v, want it in the set, missing", server)
	}

	if server, ok := set.Get("sqlite"); !ok || server.Missing != "" || server.Version == "" {
		t.Errorf("sqlite = %+v, want a server", server)
	}
}
