package grants_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/insert"
)

// answering is a database that grants everything with one token, as a distributed
// SQLite was seen to do with zero.
type answering struct {
	dialect databases.Dialect
	token   int64
	owners  []string // those of a batch
}

func (a *answering) Dialect() databases.Dialect                      { return a.dialect }
func (a *answering) Conn(context.Context) (databases.Conn, error)    { return a, nil }
func (a *answering) Verify(context.Context, databases.Session) error { return nil }
func (a *answering) Classify(error) databases.Class                  { return databases.Unknown }
func (a *answering) MaxConns() int                                   { return 0 }
func (a *answering) Release()                                        {}
func (a *answering) Discard()                                        {}

func (a *answering) Run(
	_ context.Context, s databases.Statement, _ databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	if each == nil {
		return databases.Result{RowsAffected: 1, LastInsertID: a.token}, nil
	}

	if strings.Contains(s.Name, "state") || strings.Contains(s.Name, "look") {
		return result, nil // none of the names has a row
	}

	if s.Name == "grant.where" || strings.HasPrefix(s.Name, "recovery.") {
		return result, nil
	}

	answer := a.token
	if s.Name == "grant.protocol" {
		answer = strategies.Protocol
	}

	rows := []string{""}
	if a.owners != nil {
		rows = a.owners
	}

	for _, owner := range rows {
		err := each(func(dest ...any) error {
			if len(dest) > 1 {
				*dest[0].(*string) = owner
			}

			*dest[len(dest)-1].(*int64) = answer

			return nil
		})
		if err != nil {
			return result, err
		}
	}

	return result, nil
}

// TestTokenMustBePositive: a server that answers otherwise does not do what it
// says, and grants nothing.
func TestTokenMustBePositive(t *testing.T) {
	t.Parallel()

	const want = "does not keep the promise"

	request := strategies.Request{Name: "name", Owner: "owner", Lease: time.Minute}
	other := strategies.Request{Name: "other", Owner: "another", Lease: time.Minute}

	for _, dialect := range []databases.Dialect{databases.Postgres, databases.MySQL, databases.SQLite} {
		for _, token := range []int64{0, -1} {
			if dialect == databases.MySQL && token == 0 {
				continue // says that nothing was granted
			}

			for _, strategy := range []strategies.Strategy{
				cas.New(&answering{dialect: dialect, token: token}), insert.New(&answering{dialect: dialect, token: token}),
			} {
				t.Run(fmt.Sprintf("%s/%T/%d", dialect, strategy, token), func(t *testing.T) {
					t.Parallel()

					grant, err := strategies.AcquireOne(t.Context(), strategy, request)
					if !grant.None() || err == nil || dialect != databases.MySQL && !strings.Contains(err.Error(), want) {
						t.Errorf("TryAcquire() = %v, %v, want an error that says %q", grant, err, want)
					}
				})
			}

			if dialect == databases.MySQL {
				continue // says of a batch no more than how many
			}

			t.Run(fmt.Sprintf("%s/batch/%d", dialect, token), func(t *testing.T) {
				t.Parallel()

				db := &answering{dialect: dialect, token: token, owners: []string{"owner"}}

				grants, errs := cas.New(db).Acquire(t.Context(), []strategies.Request{request, other})
				if !grants[0].None() || errs[0] == nil || !strings.Contains(errs[0].Error(), want) {
					t.Errorf("Acquire() = %v, %v, want an error that says %q", grants, errs, want)
				}
			})
		}
	}
}
