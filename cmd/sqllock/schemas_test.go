package main

import (
	neturl "net/url"
	"strings"
	"testing"
)

// twoUsers returns the URLs of two users of one database, the first of whom has a schema with his name, which the
// search_path names first.
func twoUsers(t *testing.T) (owner, alice, bob, schema string) {
	t.Helper()

	owner = freshDatabase(t, "postgres")
	executeOn(t, owner, "GRANT CREATE ON SCHEMA public TO PUBLIC")

	schema, alice = restrict(t, owner)
	_, bob = restrict(t, owner)

	executeOn(t, owner, "CREATE SCHEMA AUTHORIZATION "+schema)

	return owner, alice, bob, schema
}

// TestOneSetOfTables: where the search_path leads depends on who asks. Two users of one URL must not have a set of tables
// each, of which neither excludes the other.
func TestOneSetOfTables(t *testing.T) {
	t.Parallel()

	t.Run("the first in public", func(t *testing.T) {
		t.Parallel()

		owner, alice, bob, schema := twoUsers(t)

		run(t, bob, "migrate", "up").want(0)
		executeOn(t, bob, "GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC")

		run(t, alice, "migrate", "up").want(exitUnavailable, "schema public has sqllock's tables", "search_path=public", "search_path="+schema)
		run(t, alice, "migrate", "down", "--all").want(exitUnavailable, "search_path=public")
		run(t, alice, "run", "--name", "n", "--", "true").want(0)

		i := run(t, alice, "migrate", "status")
		i.want(0)

		if !strings.Contains(i.stdout.String(), "applied") {
			t.Errorf("migrate status said %q", i.stdout.String())
		}

		diagnosed(t, run(t, alice, "doctor"), 0, "ok schema")
		run(t, bob, "migrate", "up").want(0)

		// On purpose.
		second := withParameter(t, alice, "search_path", schema)
		run(t, second, "migrate", "up").want(0)

		for _, url := range []string{second, bob, owner} {
			theirs := schema
			if url == second {
				theirs = "public"
			}

			diagnosed(t, run(t, url, "doctor"), 0, "warning search_path schema "+theirs+" has sqllock's tables too",
				"whoever uses those does not exclude you")
		}

		run(t, second, "migrate", "down", "--all").want(0)
	})

	t.Run("the first in a user's schema", func(t *testing.T) {
		t.Parallel()

		_, alice, bob, schema := twoUsers(t)

		run(t, alice, "migrate", "up").want(0)

		i := run(t, bob, "migrate", "up")
		i.want(exitUnavailable, "schema "+schema+" has sqllock's tables", "search_path=public")

		for _, args := range [][]string{{"migrate", "down"}, {"migrate", "status"}} {
			run(t, bob, args...).want(exitUnavailable, "schema "+schema+" has sqllock's tables")
		}

		run(t, alice, "migrate", "up").want(0)
		run(t, withParameter(t, bob, "search_path", "public"), "migrate", "up").want(0)
	})
}

// TestSecondSetAfterTheFirstHasGone: the version table stays where the tables were once, and is no set of them.
func TestSecondSetAfterTheFirstHasGone(t *testing.T) {
	t.Parallel()

	first := freshDatabase(t, "postgres")
	moved := withParameter(t, first, "search_path", "locks")

	run(t, first, "migrate", "up").want(0)
	run(t, first, "migrate", "down", "--all").want(0)
	executeOn(t, first, "CREATE SCHEMA locks")
	run(t, moved, "migrate", "up").want(0)

	for _, args := range [][]string{{"migrate", "up"}, {"migrate", "down", "--all"}, {"migrate", "status"}} {
		run(t, first, args...).want(exitUnavailable, "schema locks has sqllock's tables")
	}

	diagnosed(t, run(t, first, "doctor"), 1, "error schema sqllock's tables are missing", "fix: name the schema of the tables in the URL")
	run(t, moved, "run", "--name", "n", "--", "true").want(0)
	run(t, moved, "migrate", "down", "--all").want(0)
	run(t, first, "migrate", "up").want(0)
}

// TestCopiedTable: a copy of one table in an earlier schema takes its place for those who have that in their search_path.
func TestCopiedTable(t *testing.T) {
	t.Parallel()

	owner := migratedOn(t, "postgres")
	executeOn(t, owner, "CREATE SCHEMA copies")
	executeOn(t, owner, "CREATE TABLE copies.sqllock_locks (LIKE sqllock_locks INCLUDING ALL)")

	u, err := neturl.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}

	const said = "sqllock's tables are in more than one schema: sqllock_locks in copies"

	mixed := withParameter(t, u.String(), "search_path", "copies,public")
	diagnosed(t, run(t, mixed, "doctor"), 1, "error search_path "+said, "drop")
	run(t, mixed, "migrate", "up").want(exitUnavailable, said)
	run(t, mixed, "migrate", "down", "--force").want(exitUnavailable, said)
	diagnosed(t, run(t, owner, "doctor"), 0, "warning search_path schema copies has sqllock's tables too")
}
