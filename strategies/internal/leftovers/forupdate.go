package leftovers

import (
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

// ForUpdate are the rows of sqllock_mutexes, which strategy forupdate locks. They
// belong to names and to no grant.
var ForUpdate = grants.Table[grants.Leftover]{
	databases.Postgres: {
		Remove: databases.Statement{
			Name: "forupdate.remove",
			SQL: `DELETE FROM sqllock_mutexes WHERE name = (
    SELECT name FROM sqllock_mutexes m
     WHERE name = $1 AND NOT EXISTS (SELECT 1 FROM sqllock_locks l WHERE l.name = m.name)
       FOR UPDATE SKIP LOCKED)`,
			Args: []string{"name"},
		},
	},
	databases.MySQL: {
		Remove: databases.Statement{
			Name: "forupdate.remove",
			SQL: `DELETE m FROM sqllock_mutexes m LEFT JOIN sqllock_locks l ON l.name = m.name
 WHERE m.name = UNHEX(?) AND l.name IS NULL`,
			Args: []string{"name"},
		},
	},
}
