package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/migrations"
)

// TestDoctorTriesALock: what is in a catalog does not say what it does.
func TestDoctorTriesALock(t *testing.T) {
	t.Parallel()

	type change struct {
		did, undid []string
		said       string
	}

	// emptied replaces a view by one that has no rows.
	emptied := func(view, rename, said string) change {
		return change{
			[]string{fmt.Sprintf(rename, view, "theirs"), "CREATE VIEW " + view + " AS SELECT * FROM theirs WHERE 1 = 0"},
			[]string{"DROP VIEW " + view, fmt.Sprintf(rename, "theirs", view)},
			said,
		}
	}

	constrained := func(check, said string) change {
		return change{
			[]string{"ALTER TABLE sqllock_locks ADD CONSTRAINT mine CHECK (" + check + ")"},
			[]string{"ALTER TABLE sqllock_locks DROP CONSTRAINT mine"},
			said,
		}
	}

	// onServer adds to what is one server's own what is alike on all but for how a view is renamed.
	onServer := func(rename string, own ...change) []change {
		return append(
			own,
			emptied("sqllock_holders", rename, "error trial the view sqllock_holders does not have a lock that is held"),
			emptied("sqllock_waiters", rename, "error trial the view sqllock_waiters does not have who waits"),
			constrained("token < 100", "error trial a lock that nobody has cannot be acquired"),
		)
	}

	mysql := onServer("RENAME TABLE %s TO %s",
		change{
			[]string{"CREATE TRIGGER mine BEFORE UPDATE ON sqllock_leases FOR EACH ROW SET NEW.owner = OLD.owner"},
			[]string{"DROP TRIGGER mine"},
			"error trial a lock that nobody has cannot be acquired",
		},
		change{
			[]string{"CREATE TABLE audit (token BIGINT)", "CREATE TRIGGER mine AFTER INSERT ON sqllock_locks FOR EACH ROW INSERT INTO audit VALUES (NEW.token)"},
			[]string{"DROP TRIGGER mine", "DROP TABLE audit"},
			"warning tables the tables have 1 triggers",
		},
	)

	changes := map[string][]change{
		"mysql": mysql, "mariadb": mysql,
		"postgres": onServer("ALTER VIEW %s RENAME TO %s",
			change{
				[]string{
					"CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
					"CREATE TRIGGER mine BEFORE INSERT OR UPDATE ON sqllock_locks FOR EACH ROW EXECUTE FUNCTION suppress()",
				},
				[]string{"DROP FUNCTION suppress() CASCADE"},
				"error trial a lock that nobody has cannot be acquired",
			},
			change{
				[]string{
					"CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
					"CREATE TRIGGER mine BEFORE INSERT OR UPDATE ON sqllock_locks FOR EACH ROW EXECUTE FUNCTION pass()",
				},
				[]string{"DROP FUNCTION pass() CASCADE"},
				"warning tables the tables have 1 triggers",
			},
		),
		"sqlite": {
			{
				[]string{"CREATE TRIGGER mine BEFORE INSERT ON sqllock_locks BEGIN SELECT RAISE(IGNORE); END"},
				[]string{"DROP TRIGGER mine"},
				"error trial a lock that nobody has cannot be acquired",
			},
			{
				[]string{"CREATE TRIGGER mine BEFORE UPDATE ON sqllock_locks BEGIN SELECT RAISE(ABORT, 'no renewal'); END"},
				[]string{"DROP TRIGGER mine"},
				"error trial",
			},
		},
	}

	for _, name := range databaseNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := migratedOn(t, name)

			for _, c := range changes[name] {
				for _, statement := range c.did {
					executeOn(t, url, statement)
				}

				code := 0
				if strings.HasPrefix(c.said, "error") {
					code = 1
				}

				diagnosed(t, run(t, url, "doctor"), code, c.said)

				for _, statement := range c.undid {
					executeOn(t, url, statement)
				}
			}

			strategies := []string{"cas", "insert"}
			if name != "sqlite" {
				strategies = append(strategies, "forupdate", "advisory")
			}

			for _, strategy := range strategies {
				diagnosed(t, run(t, url, "doctor", "--strategy", strategy), 0, "ok tables", "ok trial")
				leavesNothing(t, url)
			}
		})
	}
}

// leavesNothing fails the test if there is a row in one of the tables.
func leavesNothing(t *testing.T, url string) {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	db := openDatabase(t, ctx, url)

	defer db.Close()

	expected, err := migrate.Expected(db.Target.Dialect)
	if err != nil {
		t.Fatal(err)
	}

	for _, object := range expected {
		if slices.Contains([]string{migrations.TableName, "sqllock_floor", "sqllock_recovery", "sqllock_run", "sqllock_protocol"}, object.Name) {
			continue
		}

		var rows int
		if err := db.SQL.QueryRowContext(ctx, "SELECT count(*) FROM "+object.Name).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%s has %d rows (%v), want none", object.Name, rows, err)
		}
	}
}
