package quorum_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/quorum"
)

// TestConformance runs the suite over three servers in memory, whose faults strike whichever comes first.
func TestConformance(t *testing.T) {
	t.Parallel()

	sqllocktest.Run(t, sqllocktest.Harness{
		Patience:   10 * time.Second,
		Isolations: []string{"read committed", "serializable"},
		New: func(*testing.T) sqllocktest.Fixture {
			servers, peers := make([]*sqllocktest.Memory, 3), make([]*sqllocktest.Memory, 3)
			for i := range servers {
				servers[i] = sqllocktest.NewMemory()
				peers[i] = servers[i].Peer()
				servers[i].Script, peers[i].Script = servers[0].Script, peers[0].Script
			}

			servers[0].Spread(len(servers))
			peers[0].Spread(len(peers))

			every := func(f func(*sqllocktest.Memory)) {
				for _, server := range servers {
					f(server)
				}
			}

			return sqllocktest.Fixture{
				Strategy: over(servers),
				Other:    over(peers),
				Script:   servers[0].Script,
				Begin: func(*testing.T, string) sqllocktest.Transaction {
					tx := servers[0].Begin()

					return sqllocktest.Transaction{Tx: tx, Commit: tx.Commit, Rollback: tx.Rollback}
				},
				Age: func(_ *testing.T, name string, d time.Duration) {
					every(func(m *sqllocktest.Memory) { m.Age(name, d) })
				},
				RemoveRow: func(_ *testing.T, name string) {
					every(func(m *sqllocktest.Memory) { m.Remove(name) })
				},
				LockRow: func(_ *testing.T, name string) func() {
					var ends []func() error

					every(func(m *sqllocktest.Memory) {
						tx := m.Begin()
						tx.Lock(name)

						ends = append(ends, tx.Rollback)
					})

					return func() {
						for _, end := range ends {
							_ = end()
						}
					}
				},
			}
		},
	})
}

// over is the strategy over servers in memory.
func over(servers []*sqllocktest.Memory) *quorum.Strategy {
	members := make([]strategies.Strategy, len(servers))
	for i, server := range servers {
		members[i] = server
	}

	return quorum.New(members...)
}
