package grants

import "github.com/sqllock/sqllock/databases"

// SQLiteFloor is the largest token of any row that was removed, and SQLiteFirst the first of a row. With one writer the acquisition
// sees what each removal before it has noted.
const (
	SQLiteFloor = `coalesce((SELECT f.token FROM sqllock_floor f), 0)`
	SQLiteFirst = `max(` + SQLiteNow + `, ` + SQLiteFloor + ` + ?10)`
)

// What rows may be removed that are not in use: those that tell nothing, or those whose tick was long ago.
const (
	sqliteUnnoted   = `l.tick = 0 AND l.ended = ''`
	sqliteForgotten = `l.tick < ` + SQLiteNow + ` - ` + tickKept
)

// sqliteIdle is true of rows that are not in use, for an age that is bound twice.
const sqliteIdle = `l.owner = '' AND l.expires_at + l.lock_delay_us <= ` + SQLiteNow + ` AND l.acquired_at < ` + SQLiteNow + ` - ?
   AND l.waiting <= ` + SQLiteNow + ` - ?`

// sqliteFind lists names before the transaction, which keeps all others from writing.
func sqliteFind(name, which string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `SELECT l.name FROM sqllock_locks l
 WHERE ` + sqliteIdle + ` AND ` + which + `
   AND NOT EXISTS (SELECT 1 FROM sqllock_queue q
                    WHERE q.name = iif(instr(l.name, char(31)) = 0, l.name, substr(l.name, 1, instr(l.name, char(31)) - 1))
                      AND q.expires_at > ` + SQLiteNow + `)
   AND NOT EXISTS (SELECT 1 FROM sqllock_shares s WHERE s.name = l.name)
 LIMIT ?`,
		Args: []string{"age", "age", "limit"},
	}
}

func sqliteLock(name, which string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL:  `SELECT l.name, l.token FROM sqllock_locks l WHERE l.name IN (?...) AND ` + sqliteIdle + ` AND ` + which,
		Args: []string{"age", "age"},
	}
}

// sqliteRemove removes rows.
var sqliteRemove = Removal{
	Begin:         []databases.Statement{{Name: "grant.remove-begin", SQL: `BEGIN IMMEDIATE`}},
	Lock:          sqliteLock("grant.lock-idle", sqliteUnnoted),
	LockForgotten: sqliteLock("grant.lock-forgotten", sqliteForgotten),
	Floor: databases.Statement{
		Name: "grant.floor",
		SQL:  `INSERT INTO sqllock_floor (id, token) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET token = max(token, excluded.token)`,
		Args: []string{"token"},
	},
	Delete: []databases.Statement{
		{Name: "grant.remove", SQL: `DELETE FROM sqllock_locks WHERE name IN (?...)`},
		{Name: "grant.remove-leftover", SQL: `DELETE FROM sqllock_inserts WHERE name IN (?...)`},
	},
}
