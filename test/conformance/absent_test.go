package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// refuses is a database to which no connection can be made while there is an error.
type refuses struct {
	databases.DB

	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (r *refuses) Conn(ctx context.Context) (databases.Conn, error) {
	if err := r.err.Load(); err != nil {
		r.calls.Add(1)

		return nil, *err
	}

	return r.DB.Conn(ctx)
}

func fatal(state string) error {
	return &pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: state, Message: "as a pooler says"}
}

// TestAnswersOfAnAbsentServer: poolers answer for a server that is away, and passwords change. Who has reached the database before
// goes on waiting, and who has not is told at once what the answer was.
func TestAnswersOfAnAbsentServer(t *testing.T) {
	t.Parallel()

	answers := map[string][]error{
		"postgres": {fatal("58000"), fatal("XX000"), fatal("28P01"), fatal("3D000")},
		"mysql":    {&driver.MySQLError{Number: 1045, Message: "Access denied"}, &driver.MySQLError{Number: 1049, Message: "Unknown database"}},
	}
	open := map[string]func(*testing.T) databases.DB{
		"postgres": func(t *testing.T) databases.DB {
			t.Helper()

			return postgres.NewStd(stdPool(t, postgresDatabase(t, postgresConfig(t))))
		},
		"mysql": func(t *testing.T) databases.DB {
			t.Helper()

			return mysql.New(mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, "mysql"))))
		},
	}

	for server, errs := range answers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			for _, strategy := range catalog.All() {
				if strategy.Name == "advisory" {
					continue // its session is kept, and needs no connection
				}

				db := &refuses{DB: open[server](t)}

				for _, answer := range errs {
					absent(t, db, strategy, answer)
				}

				closed := errors.New("the pool is closed") // no answer of a server
				locker := lockerOn(t, strategy.Make(db))
				pair(t, locker, "closed")
				db.err.Store(&closed)

				if _, err := locker.Acquire(t.Context(), "closed"); !errors.Is(err, closed) || errors.Is(err, sqllock.ErrUnreachable) {
					t.Errorf("%s: Acquire() from a pool that has failed = %v, want its error", strategy.Name, err)
				}

				db.err.Store(nil)
			}
		})
	}
}

func absent(t *testing.T, db *refuses, strategy catalog.Strategy, answer error) {
	t.Helper()

	db.err.Store(&answer)

	_, err := lockerOn(t, strategy.Make(db)).Acquire(t.Context(), "absent")
	if !errors.Is(err, answer) || errors.Is(err, sqllock.ErrUnreachable) {
		t.Errorf("%s: Acquire() of who was never answered otherwise = %v, want that, and not ErrUnreachable", strategy.Name, err)
	}

	db.err.Store(nil)

	locker := lockerOn(t, strategy.Make(db))
	pair(t, locker, "absent")
	db.err.Store(&answer)

	if _, err := locker.TryAcquire(t.Context(), "absent"); !errors.Is(err, sqllock.ErrUnreachable) || !errors.Is(err, answer) {
		t.Errorf("%s: TryAcquire() = %v, want ErrUnreachable and the answer", strategy.Name, err)
	}

	acquired := make(chan error, 1)
	before := db.calls.Load()

	go func() {
		lock, err := locker.Acquire(t.Context(), "absent")
		if err == nil {
			err = lock.Release(t.Context())
		}

		acquired <- err
	}()

	eventually(t, "it tries again and again", func() bool { return db.calls.Load() > before+2 || len(acquired) > 0 })
	db.err.Store(nil)

	if err := <-acquired; err != nil {
		t.Errorf("%s: Acquire() that began while the server was away = %v, want the lock", strategy.Name, err)
	}
}

func pair(t *testing.T, locker *sqllock.Locker, name string) {
	t.Helper()

	lock, err := locker.Acquire(t.Context(), name)
	if err == nil {
		err = lock.Release(t.Context())
	}

	if err != nil {
		t.Fatalf("Acquire() and Release() = %v, want the lock", err)
	}
}
