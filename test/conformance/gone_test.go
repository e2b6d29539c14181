package conformance_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestReleaseOfAGoneRow: a lock whose row is gone, of a database that was restored say, was lost, also if it is released together with
// others. One that an earlier release has ended was not.
func TestReleaseOfAGoneRow(t *testing.T) {
	t.Parallel()

	eachRecoverable(t, catalog.Leased(), func(t *testing.T, made func() strategies.Strategy, beside *sql.DB) {
		strategy := made()
		release := func(held ...strategies.Grant) []error {
			_, errs := strategy.Release(t.Context(), held)

			return errs
		}

		held := make(map[string]strategies.Grant)

		for _, name := range []string{"there", "gone"} {
			grant, err := single.TryAcquire(t.Context(), strategy, strategies.Request{Name: name, Owner: name, Lease: time.Minute, Tokens: 1})
			if err != nil {
				t.Fatal(err)
			}

			held[name] = grant.Grant
		}

		tables := []string{"sqllock_locks", "sqllock_inserts"}
		if strategy.Features().Database != "postgres" {
			tables = append(tables, "sqllock_leases")
		}

		remove := func(name string) {
			for _, table := range tables {
				exec(t, beside, "DELETE FROM "+table+" WHERE name = '"+name+"'")
			}
		}

		remove("gone")

		errs := release(held["there"], held["gone"])
		if errs[0] != nil || !errors.Is(errs[1], strategies.ErrNotBatched) {
			t.Fatalf("Release() of both = %v, want nil and ErrNotBatched", errs)
		}

		if errs := release(held["gone"]); !errors.Is(errs[0], strategies.ErrLost) {
			t.Errorf("Release() of a lock whose row is gone = %v, want ErrLost", errs[0])
		}

		remove("there")

		if errs := release(held["there"]); errs[0] != nil {
			t.Errorf("Release() again, of one whose row is gone since = %v, want nil", errs[0])
		}
	})
}
