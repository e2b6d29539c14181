package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestElection: a leader that is asked to resign is followed by the one that waits, and who observes sees both.
func TestElection(t *testing.T) {
	t.Parallel()

	pools := freshPools(t)
	file := sqliteFile(t)
	pools["sqlite"] = func(t *testing.T) databases.DB {
		t.Helper()

		return sqlite.New(sqlitePool(t, file))
	}

	for server, open := range pools {
		for _, strategy := range catalog.All() {
			if server == "sqlite" && strategy.Name != "cas" && strategy.Name != "insert" {
				continue
			}

			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()

				candidate := func() *election.Election {
					e, err := election.New(lockerOn(t, strategy.Make(open(t))), "leader of "+strategy.Name)
					if err != nil {
						t.Fatal(err)
					}

					return e
				}

				terms := make(chan int64)
				causes := make(chan error, 10)
				ended := make(chan error, 2)

				campaign := func(e *election.Election) {
					ended <- e.Run(ctx, func(ctx context.Context, term *sqllock.Lock) error {
						select {
						case terms <- term.Token():
						case <-ctx.Done(): // somebody may lead in the moment of the end
						}

						<-ctx.Done()

						causes <- context.Cause(ctx)

						return nil
					})
				}

				seen := make(chan election.Leader, 100)
				observer := candidate()

				go func() {
					defer close(seen)

					for leader, err := range observer.Observe(ctx) {
						if err != nil && ctx.Err() == nil {
							t.Errorf("Observe() yields %v", err)
						}

						seen <- leader
					}
				}()

				sees := func(term int64) {
					for leader := range seen {
						if leader.Term == term {
							return
						}
					}

					t.Errorf("Observe() has not yielded term %d", term)
				}

				go campaign(candidate())

				first := <-terms
				sees(first)

				go campaign(candidate())

				if err := observer.RequestResign(ctx, "a test"); err != nil {
					t.Errorf("RequestResign() = %v, want nil", err)
				}

				if err := <-causes; !errors.Is(err, election.ErrResignRequested) {
					t.Errorf("the leader's context ended with %v, want ErrResignRequested", err)
				}

				second := <-terms
				sees(second)

				if second <= first {
					t.Errorf("term %d follows %d, want a larger one", second, first)
				}

				stop()

				for range 2 {
					if err := <-ended; err != nil {
						t.Errorf("Run() = %v, want nil", err)
					}
				}

				for range seen {
				}
			})
		}
	}
}
