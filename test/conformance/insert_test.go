package conformance_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/insert"
)

// TestInsertTogether: what is in the way of one row of sqllock_inserts is in the way of no other name.
func TestInsertTogether(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb", "sqlite"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, server)

			t.Run("rows that crashed holders left", func(t *testing.T) { leftOver(t, insert.New(db), beside) })
			t.Run("statements that fail", func(t *testing.T) { failing(t, db) })

			if server == "sqlite" {
				return // it has one writer, which stops all others
			}

			t.Run("a left-over row that is locked", func(t *testing.T) {
				inTheWay(t, insert.New(db), beside, true, func(tx *sql.Tx, name string) error {
					exec(t, beside, insertRow(name))

					_, err := tx.ExecContext(t.Context(), "SELECT * FROM sqllock_inserts WHERE name = '"+name+"' FOR UPDATE")

					return err
				})
			})
			t.Run("a row that is not committed", func(t *testing.T) {
				inTheWay(t, insert.New(db), beside, server == "postgres", func(tx *sql.Tx, name string) error {
					_, err := tx.ExecContext(t.Context(), insertRow(name))

					return err
				})
			})
		})
	}
}

func insertRow(name string) string {
	return "INSERT INTO sqllock_inserts (name, owner) VALUES ('" + name + "', 'nobody')"
}

// three are requests for new names, which have been held before.
func three(t *testing.T, s *insert.Strategy) []strategies.Request {
	t.Helper()

	requests := make([]strategies.Request, 3)
	for i := range requests {
		requests[i] = strategies.Request{Name: fmt.Sprintf("%s/%d", uniqueName(), i), Owner: rand.Text(), Lease: time.Minute}
	}

	tryAndRelease(t, s, requests)

	return requests
}

// tryAndRelease fails if another owner cannot have one of the names.
func tryAndRelease(t *testing.T, s *insert.Strategy, requests []strategies.Request) {
	t.Helper()

	for _, r := range requests {
		r.Owner = rand.Text()

		grant, err := single.TryAcquire(t.Context(), s, r)
		if err == nil {
			err = grant.Release(t.Context())
		}

		if err != nil {
			t.Fatalf("another owner of %q: %v, want that it gets and releases it", r.Name, err)
		}
	}
}

// owners are those of the rows of names.
func owners(t *testing.T, beside *sql.DB, requests []strategies.Request) map[string]string {
	t.Helper()

	found := make(map[string]string)

	for _, r := range requests {
		var owner string

		err := beside.QueryRowContext(t.Context(), "SELECT owner FROM sqllock_inserts WHERE name = '"+r.Name+"'").Scan(&owner)

		switch {
		case err == nil:
			found[r.Name] = owner
		case !errors.Is(err, sql.ErrNoRows):
			t.Fatal(err)
		}
	}

	return found
}

func leftOver(t *testing.T, s *insert.Strategy, beside *sql.DB) {
	t.Helper()

	requests := three(t, s)
	exec(t, beside, insertRow(requests[1].Name))

	grants, errs := s.Acquire(t.Context(), requests)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Acquire() = %v, want the grants", err)
	}

	for i, found := 0, owners(t, beside, requests); i < len(requests); i++ {
		if got := found[requests[i].Name]; got != requests[i].Owner {
			t.Errorf("the row of %q is that of %q, want %q", requests[i].Name, got, requests[i].Owner)
		}
	}

	_, errs = s.Release(t.Context(), grants)
	if err := errors.Join(errs...); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}

	if found := owners(t, beside, requests); len(found) != 0 {
		t.Errorf("after Release() there are rows of %v, want none", found)
	}

	tryAndRelease(t, s, requests)
}

// failing has the statements of an attempt fail. What may be left is told as that, so that it is settled: of a name that goes
// alone next, or that somebody else is said to have, nothing is.
func failing(t *testing.T, db databases.DB) {
	t.Helper()

	deadlock := &driver.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"}
	causes := []error{sqllocktest.ErrBroken}

	if db.Dialect() == databases.MySQL {
		causes = append(causes, deadlock)
	}

	for _, statements := range [][]string{
		{"acquire-all"},
		{"insert-all"},
		{"look-all"},
		{"insert-all", "gone-all"},
		{"insert-all", "release-all"},
		{"insert-all", "leases-all"},
		{"insert-all", "look-all"},
	} {
		for _, when := range []sqllocktest.When{sqllocktest.Before, sqllocktest.After} {
			for _, cause := range causes {
				if when == sqllocktest.After && errors.Is(cause, deadlock) {
					continue // it takes everything back
				}

				faulty := sqllocktest.NewFaulty(db)
				s := insert.New(faulty)
				requests := three(t, s)

				for _, statement := range statements {
					faulty.Fail(statement, 1, when, cause)
				}

				what := fmt.Sprintf("%q fail at %v with %v", statements, when, cause)
				grants, errs := s.Acquire(t.Context(), requests)

				faulty.Reset()

				for i, r := range requests {
					status, _, err := s.Status(t.Context(), r.Name)
					if err != nil {
						t.Fatal(err)
					}

					switch ours := status.Owner == r.Owner; {
					case !grants[i].None() && ours:
						_, err = strategies.ReleaseOne(t.Context(), s, grants[i])
					case !grants[i].None():
						t.Errorf("%s: %q is granted, and the record is not its owner's", what, r.Name)
					case strategies.Uncertain(errs[i]):
						err = s.Settle(t.Context(), r)
					case ours:
						t.Errorf("%s: %q is left with its owner after %v", what, r.Name, errs[i])
					}

					if err != nil {
						t.Errorf("%s: the end of %q = %v, want nil", what, r.Name, err)
					}
				}

				tryAndRelease(t, s, requests)
			}
		}
	}
}

// inTheWay tries names while a transaction is in the way of the second one's row. brieflyAlone: one that is tried alone
// does not wait for long, either.
func inTheWay(t *testing.T, s *insert.Strategy, beside *sql.DB, brieflyAlone bool, block func(tx *sql.Tx, name string) error) {
	t.Helper()

	const brief = 4 * time.Second

	requests := three(t, s)

	tx, err := beside.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	defer tx.Rollback() //nolint:errcheck // it has ended

	if err := block(tx, requests[1].Name); err != nil {
		t.Fatal(err)
	}

	started := time.Now()

	grants, errs := s.Acquire(t.Context(), requests)

	if took := time.Since(started); took > brief {
		t.Errorf("Acquire() took %s, want %s at most", took, brief)
	}

	if errs[1] == nil {
		t.Errorf("Acquire() granted %q, whose row it cannot make", requests[1].Name)
	}

	for i, r := range requests {
		if errors.Is(errs[i], strategies.ErrNotBatched) && i != 1 {
			grants[i], errs[i] = strategies.AcquireOne(t.Context(), s, r)
		}

		if i != 1 && errs[i] != nil {
			t.Fatalf("the acquisition of %q, whose row is in nobody's way = %v, want the grant", r.Name, errs[i])
		}
	}

	for _, i := range []int{0, 2} {
		if _, err := strategies.ReleaseOne(t.Context(), s, grants[i]); err != nil {
			t.Errorf("Release() of %q = %v, want nil", requests[i].Name, err)
		}
	}

	if brieflyAlone {
		started = time.Now()

		if _, err := single.TryAcquire(t.Context(), s, requests[1]); !errors.Is(err, strategies.ErrNotAcquired) && !errors.Is(err, strategies.ErrBusy) {
			t.Errorf("TryAcquire() = %v, want that it is refused", err)
		}

		if took := time.Since(started); took > brief {
			t.Errorf("TryAcquire() took %s, want %s at most", took, brief)
		}
	}

	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	tryAndRelease(t, s, requests)
}

// TestRowOfAPassedGrant: a row of sqllock_inserts that somebody has locked is in the way of no lock that is detached or adopted. It is
// left over then, and replaced by the next holder.
func TestRowOfAPassedGrant(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			db, beside := databaseAndPool(t, server)
			locker, name := lockerOn(t, insert.New(db)), uniqueName()

			lock, err := locker.Acquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}

			tx, err := beside.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}

			var owner string
			if err := tx.QueryRowContext(t.Context(), "SELECT owner FROM sqllock_inserts WHERE name = '"+name+"' FOR UPDATE").Scan(&owner); err != nil {
				t.Fatal(err)
			}

			claim, err := lock.Detach(t.Context(), time.Minute)
			if err != nil {
				t.Fatalf("Detach() = %v", err)
			}

			if lock, err = locker.Adopt(t.Context(), claim); err != nil {
				t.Fatalf("Adopt() = %v", err)
			}

			if err := lock.Check(t.Context()); err != nil {
				t.Errorf("Check() of an adopted lock = %v", err)
			}

			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}

			for range 2 {
				if err := lock.Release(t.Context()); err != nil {
					t.Errorf("Release() = %v", err)
				}

				if lock, err = locker.Acquire(t.Context(), name); err != nil {
					t.Fatalf("Acquire() beside a row that is left over = %v", err)
				}
			}
		})
	}
}
