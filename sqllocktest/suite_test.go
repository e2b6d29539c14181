package sqllocktest_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// memoryHarness runs the suite over the in-memory strategy, as wrap changes it.
func memoryHarness(wrap func(*sqllocktest.Memory) strategies.Strategy) sqllocktest.Harness {
	return sqllocktest.Harness{
		Patience:   5 * time.Second,
		Isolations: []string{"read committed", "serializable"},
		New: func(*testing.T) sqllocktest.Fixture {
			memory := sqllocktest.NewMemory()
			peer := memory.Peer()

			return sqllocktest.Fixture{
				Strategy: wrap(memory),
				Other:    wrap(peer),
				Script:   memory.Script,
				Begin: func(*testing.T, string) sqllocktest.Transaction {
					tx := memory.Begin()

					return sqllocktest.Transaction{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}
				},
				Age:       func(_ *testing.T, name string, d time.Duration) { memory.Age(name, d) },
				RemoveRow: func(_ *testing.T, name string) { memory.Remove(name) },
				LockRow: func(_ *testing.T, name string) func() {
					tx := memory.Begin()
					tx.Lock(name)

					return func() { _ = tx.Rollback() }
				},
			}
		},
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()

	h := memoryHarness(func(m *sqllocktest.Memory) strategies.Strategy { return m })
	// What is right ends sooner by itself. A busy machine may take seconds for what is bounded, and the five seconds are for what
	// is wrong: a test waits that long for each of its faults.
	h.Patience, h.TryWithin = 0, 8*time.Second

	sqllocktest.Run(t, h)
}
