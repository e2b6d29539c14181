package conformance_test

import (
	"sync/atomic"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestStatementsOfANewName counts what docs/strategies.md says of the first acquisition of a name.
func TestStatementsOfANewName(t *testing.T) {
	t.Parallel()

	more := map[string]map[string]int64{
		"postgres": {"cas": 4, "insert": 4, "forupdate": 11, "advisory": 4},
		"mysql":    {"cas": 7, "insert": 7, "forupdate": 19, "advisory": 7},
		"mariadb":  {"cas": 7, "insert": 7, "forupdate": 19, "advisory": 7},
		"sqlite":   {"cas": 0, "insert": 0},
	}

	for server, strategies := range more {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, _ := databaseAndPool(t, server)

			for _, strategy := range catalog.All() {
				if want, ok := strategies[strategy.Name]; ok {
					wantMore(t, strategy, db, want)
				}
			}
		})
	}
}

// wantMore fails unless the first acquisition of a name sends so many statements more than another one.
func wantMore(t *testing.T, strategy catalog.Strategy, db databases.DB, want int64) {
	t.Helper()

	var sent atomic.Int64

	counted := watched{db, func(databases.Statement, databases.Values) { sent.Add(1) }}
	locker := lockerOn(t, strategy.Make(counted), sqllock.WithTuning(sqllock.Tuning{NoReaping: true}))

	acquire := func(name string) int64 {
		sent.Store(0)

		lock, err := locker.Acquire(t.Context(), strategy.Name+name)
		if err != nil {
			t.Fatal(err)
		}

		count := sent.Load()

		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		return count
	}

	acquire("a") // asks what the server is, and sets up a session

	if first, again := acquire("b"), acquire("b"); first-again != want {
		t.Errorf("%s sends %d statements for a new name, and %d again, want %d more", strategy.Name, first, again, want)
	}
}
