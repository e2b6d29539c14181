package grants_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// noting is a database that grants everything and notes the statement that did.
type noting struct {
	answering

	acquired databases.Statement
}

func (n *noting) Conn(context.Context) (databases.Conn, error) { return n, nil }

func (n *noting) Exec(ctx context.Context, s databases.Statement, v databases.Values) (databases.Result, error) {
	n.note(s)

	return n.answering.Exec(ctx, s, v)
}

func (n *noting) Query(ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error) error {
	n.note(s)

	switch s.Name {
	case "forupdate.lock":
		return each(func(dest ...any) error {
			if held, ok := dest[0].(*string); ok {
				*held = "held"
			}

			return nil
		})
	case "forupdate.renew":
		return nil
	default:
		return n.answering.Query(ctx, s, v, each)
	}
}

func (n *noting) note(s databases.Statement) {
	if strings.HasSuffix(s.Name, ".acquire") {
		n.acquired = s
	}
}

// TestRecordIsTakenAlike: package cas has the compare-and-set in its own sql.go, and the
// other strategies take the record with the same one beside their lock. Two that differ
// would not exclude each other.
func TestRecordIsTakenAlike(t *testing.T) {
	t.Parallel()

	for dialect, other := range map[databases.Dialect]func(databases.DB) strategies.Strategy{
		databases.Postgres: func(db databases.DB) strategies.Strategy { return forupdate.New(db) },
		databases.MySQL:    func(db databases.DB) strategies.Strategy { return insert.New(db) },
		databases.SQLite:   func(db databases.DB) strategies.Strategy { return insert.New(db) },
	} {
		acquired := func(of func(databases.DB) strategies.Strategy) databases.Statement {
			db := &noting{answering: answering{dialect: dialect, token: 1}}

			_, err := of(db).TryAcquire(t.Context(), strategies.Request{Name: "name", Owner: "owner", Lease: time.Minute})
			if err != nil || db.acquired.SQL == "" {
				t.Fatalf("%s: TryAcquire() = %v, with statement %q", dialect, err, db.acquired.Name)
			}

			return db.acquired
		}

		want := acquired(func(db databases.DB) strategies.Strategy { return cas.New(db) })
		if dialect == databases.Postgres {
			want = grants.PostgresHeld(want)
		}

		if got := acquired(other); got.SQL != want.SQL || !slices.Equal(got.Args, want.Args) {
			t.Errorf("%s: %s is\n%s %q, want it as %s is\n%s %q", dialect, got.Name, got.SQL, got.Args, want.Name, want.SQL, want.Args)
		}
	}
}

// TestNilPool: it is the database's constructor that was given none.
func TestNilPool(t *testing.T) {
	t.Parallel()

	for want, db := range map[string]databases.DB{
		"postgres.New: invalid option: the pool is nil": postgres.New(nil),
		"mysql.New: invalid option: the pool is nil":    mysql.New(nil),
		"sqlite.New: invalid option: the pool is nil":   sqlite.New(nil),
	} {
		if err := cas.New(db).Validate(); err == nil || err.Error() != want || !errors.Is(err, strategies.ErrInvalidOption) {
			t.Errorf("Validate() = %v, want %q", err, want)
		}
	}
}
