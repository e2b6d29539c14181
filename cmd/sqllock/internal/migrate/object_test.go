package migrate_test

import (
	"context"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/testdatabases"
)

// TestExpected compares what the files say with what servers make of them.
func TestExpected(t *testing.T) {
	t.Parallel()

	testdatabases.Each(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		db := testdatabases.Open(t, ctx, url)
		defer db.Close()

		if _, err := migrate.Up(ctx, db); err != nil {
			t.Fatal(err)
		}

		expected, err := migrate.Expected(db.Target.Dialect)
		if err != nil {
			t.Fatal(err)
		}

		actual, err := migrate.Actual(ctx, db.SQL.QueryContext, db.Target.Dialect)
		if err != nil {
			t.Fatal(err)
		}

		// There is the version table, too.
		if len(actual) != len(expected)+1 {
			t.Errorf("%d tables and views are there, want %d", len(actual), len(expected)+1)
		}

		for _, want := range expected {
			got := actual[want.Name]

			if differences := want.Differences(got); len(differences) > 0 {
				t.Errorf("%s differs: %v", want.Name, differences)
			}

			if !slices.Equal(got.Columns, want.Columns) || !slices.Equal(got.Keys, want.Keys) {
				t.Errorf("%s has %v, %v, want %v, %v", want.Name, got.Columns, got.Keys, want.Columns, want.Keys)
			}
		}
	})
}
