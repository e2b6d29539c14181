package leftovers

import (
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// On MySQL and TiDB.
var (
	gone = databases.Statement{
		Name: "insert.gone",
		SQL:  `DELETE FROM sqllock_inserts WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
		Args: []string{"name", "owner"},
	}
	stale = databases.Statement{
		Name: "insert.stale",
		SQL: `SELECT i.name, i.owner FROM sqllock_inserts i LEFT JOIN sqllock_leases e ON e.name = i.name AND e.owner = i.owner
 WHERE e.name IS NULL ORDER BY i.name LIMIT 1000`,
	}
)

// Insert are the rows of sqllock_inserts, which strategy insert makes. A row is
// told by its owner, whom no later row of the name has.
var Insert = grants.Table[grants.Leftover]{
	databases.Postgres: {
		// It is part of the same statement, and runs after the record was freed, because
		// nothing reads from it
		// (https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-MODIFYING).
		With: `WITH gone AS (DELETE FROM sqllock_inserts WHERE name = $1 AND owner = $2)
`,
		Stale: databases.Statement{
			Name: "insert.stale",
			SQL: `SELECT i.name, i.owner FROM sqllock_inserts i
 WHERE NOT EXISTS (SELECT 1 FROM sqllock_locks l WHERE l.name = i.name AND l.owner = i.owner) AND ` + grants.PostgresAtPrimary + `
 ORDER BY i.name LIMIT 1000`,
		},
		Clear: databases.Statement{
			Name: "insert.clear-stale",
			SQL: `DELETE FROM sqllock_inserts WHERE name = (
    SELECT name FROM sqllock_inserts WHERE name = $1 AND owner = $2 FOR UPDATE SKIP LOCKED)`,
			Args: []string{"name", "owner"},
		},
	},

	databases.MySQL: {
		Delete: gone,
		Stale:  stale,
		Clear: databases.Statement{
			Name: "insert.clear-stale",
			SQL: `DELETE i FROM (SELECT name FROM sqllock_inserts WHERE name = UNHEX(?) AND owner = UNHEX(?) LIMIT 1 FOR UPDATE SKIP LOCKED) stale
STRAIGHT_JOIN sqllock_inserts i ON i.name = stale.name`,
			Args: []string{"name", "owner"},
		},
	},

	databases.TiDB: {
		Delete: gone,
		Stale:  stale,
		Clear: databases.Statement{
			Name: "insert.clear-stale",
			SQL: `SELECT name FROM sqllock_inserts WHERE name = UNHEX(?) AND owner = UNHEX(?) FOR UPDATE NOWAIT;
DELETE FROM sqllock_inserts WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
			Args: []string{"name", "owner", "name", "owner"},
		},
	},

	databases.SQLite: {
		Delete: databases.Statement{
			Name: "insert.gone",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner"},
		},
		Stale: databases.Statement{
			Name: "insert.stale",
			SQL: `SELECT i.name, i.owner FROM sqllock_inserts i
 WHERE NOT EXISTS (SELECT 1 FROM sqllock_locks l WHERE l.name = i.name AND l.owner = i.owner) LIMIT 1000`,
		},
		Clear: databases.Statement{
			Name: "insert.clear-stale",
			SQL:  `DELETE FROM sqllock_inserts WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner"},
		},
	},
}
