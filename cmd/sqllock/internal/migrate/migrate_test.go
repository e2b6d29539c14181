package migrate_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/testdatabases"
)

func TestUpDownUp(t *testing.T) {
	t.Parallel()

	testdatabases.Each(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		db := testdatabases.Open(t, ctx, url)
		defer db.Close()

		total := pending(t, ctx, url, 0)

		for _, step := range []struct {
			what string
			do   func() ([]migrate.Step, error)
			want int
		}{
			{"up", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, total},
			{"up again", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, 0},
			{"down", func() ([]migrate.Step, error) { return migrate.Down(ctx, db) }, 1},
			{"up after down", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, 1},
			{"down all", func() ([]migrate.Step, error) { return migrate.DownAll(ctx, db) }, total},
			{"down all again", func() ([]migrate.Step, error) { return migrate.DownAll(ctx, db) }, 0},
			{"down with nothing left", func() ([]migrate.Step, error) { return migrate.Down(ctx, db) }, 0},
			{"up once more", func() ([]migrate.Step, error) { return migrate.Up(ctx, db) }, total},
		} {
			steps, err := step.do()
			if err != nil || len(steps) != step.want {
				t.Fatalf("%s = %d steps, %v, want %d", step.what, len(steps), err, step.want)
			}
		}

		if got := pending(t, ctx, url, total); got != 0 {
			t.Errorf("%d migrations are pending at the end, want 0", got)
		}

		testdatabases.Execute(t, url, "DELETE FROM sqllock_locks")
	})
}

// pending counts them, and checks how many are applied.
func pending(t *testing.T, ctx context.Context, url string, applied int) int {
	t.Helper()

	db := testdatabases.Open(t, ctx, url)
	defer db.Close()

	statuses, err := migrate.Statuses(ctx, db)
	if err != nil {
		t.Fatal(err)
	}

	n := 0

	for _, s := range statuses {
		if !s.Applied {
			n++
		} else if s.At.IsZero() {
			t.Errorf("%s is applied at no time", s.Name)
		}
	}

	if len(statuses)-n != applied {
		t.Errorf("%d migrations are applied, want %d", len(statuses)-n, applied)
	}

	return n
}

// TestStatusesWritesNothing because a look must not make tables.
func TestStatusesWritesNothing(t *testing.T) {
	t.Parallel()

	url := testdatabases.Fresh(t, "sqlite")
	pending(t, t.Context(), url, 0)

	db := testdatabases.Open(t, t.Context(), url)
	defer db.Close()

	var n int
	if err := db.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d tables are there after a look (%v), want 0", n, err)
	}
}

// TestUpAtOnce is a deployment in which every instance migrates.
func TestUpAtOnce(t *testing.T) {
	t.Parallel()

	testdatabases.Each(t, func(t *testing.T, ctx context.Context, url string) {
		t.Helper()

		const instances = 4

		var (
			group   sync.WaitGroup
			mu      sync.Mutex
			applied int
		)

		for range instances {
			db := testdatabases.Open(t, ctx, url)
			defer db.Close()

			group.Go(func() {
				steps, err := migrate.Up(ctx, db)
				if err != nil {
					t.Errorf("Up beside others: %v", err)
				}

				mu.Lock()
				defer mu.Unlock()

				applied += len(steps)
			})
		}

		group.Wait()

		if left := pending(t, ctx, url, applied); left != 0 {
			t.Errorf("%d migrations are pending after all, want 0", left)
		}
	})
}

func TestPrint(t *testing.T) {
	t.Parallel()

	for _, dialect := range []string{"postgres", "mysql", "sqlite"} {
		var up, down strings.Builder

		if err := migrate.Print(&up, dialect, false); err != nil {
			t.Fatal(err)
		}

		if err := migrate.Print(&down, dialect, true); err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(up.String(), "CREATE TABLE sqllock_locks") || strings.Contains(up.String(), "DROP") ||
			strings.Contains(up.String(), "+goose") {
			t.Errorf("Print(%s) = %s", dialect, up.String())
		}

		if !strings.Contains(down.String(), "DROP TABLE sqllock_locks") || strings.Contains(down.String(), "CREATE") {
			t.Errorf("Print(%s, down) = %s", dialect, down.String())
		}
	}

	if err := migrate.Print(&strings.Builder{}, "oracle", false); err == nil {
		t.Error("Print(oracle) = nil, want an error")
	}
}
