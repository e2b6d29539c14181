package grants

import (
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// MySQLKeyed are the statements of MySQL and MariaDB that take a named lock and grant the name in one, and end the grant and
// free the named lock in one.
//
// Both servers ask GET_LOCK and RELEASE_LOCK once for each row that has passed what stands before them in an IF, when they have
// locked it. In an AND they would ask them sooner, as soon as they had read the columns in their parameters: MariaDB 11.8 took
// the named lock of a row that it then skipped.
var MySQLKeyed = struct {
	Acquire, AcquireAll, State, Release, ReleaseAll, Look, UnlockLeft databases.Statement
}{
	Acquire: mysqlAcquire("advisory.acquire", `IF(`, mysqlInstead, ` AND NOT @@global.read_only, GET_LOCK(UNHEX(?), 0), 0) = 1`,
		"session", "seen", "seen", "key"),

	// All that it grants have the token that it tells, the clock: what would have another one, because that is ahead of the clock
	// or the owner has the name already, is granted alone.
	AcquireAll: mysqlAcquireAll("advisory.acquire-all", mysqlLocked(mysqlCalls(mysqlWanted+mysqlKey, mysqlWantedPaths+mysqlKeyPath),
		`IF(l.token <> 0 AND l.token + COALESCE(a.tokens, ?) <= `+MySQLNow+` AND e.owner <> a.owner AND (e.waiting = 0 OR COALESCE(a.first, ?))
              AND (e.expires_at + l.lock_delay_us <= `+MySQLNow+` OR l.strategy = UNHEX(?)) AND NOT @@global.read_only, GET_LOCK(a.lock_key, 0), 0) = 1`),
		[]string{"calls", "tokens", "first", "session"}, `LAST_INSERT_ID(`+MySQLNow+`)`),

	// Where nothing was granted: not every account is kept from writing by a server that is read-only, and a session may have the
	// named lock of a row that is free.
	State: databases.Statement{
		Name: "advisory.state",
		SQL:  strings.Replace(MySQL.State.SQL, `SELECT `, `SELECT @@global.read_only, IS_USED_LOCK(UNHEX(?)) IS NOT NULL, `, 1),
		Args: []string{"key", "name"},
	},

	// The insert id is zero if there was no such grant. Otherwise it is one more than what it says in two bits: whether others wait,
	// and whether the session had the named lock.
	Release: databases.Statement{
		Name: "advisory.release",
		SQL: `UPDATE sqllock_leases
   SET owner = '', expires_at = 0 * LAST_INSERT_ID(1 + (waiting <> 0) + 2 * (` + MySQLUnlocked("UNHEX(?)") + `))
 WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
		Args: []string{"key", "key", "name", "owner"},
	},

	// As that of many leases, of those only whose named lock it has freed.
	ReleaseAll: databases.Statement{
		Name: "advisory.release-all",
		SQL: `UPDATE (
    SELECT e.name FROM ` + mysqlKeys + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE IF(e.owner = a.owner, ` + MySQLUnlocked("a.lock_key") + `, 0)
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = ours.name
   SET e.owner = '', e.expires_at = IF(e.waiting <> 0, 0 * LAST_INSERT_ID(1), 0)`,
		Args: []string{"calls"},
	},

	// What became of each, if not all were done.
	Look: databases.Statement{
		Name: "advisory.look",
		SQL: `SELECT a.owner, COALESCE(IS_USED_LOCK(a.lock_key), 0) = CONNECTION_ID(), COALESCE(IF(e.owner = a.owner, l.token, 0), 0), @@global.read_only
  FROM ` + mysqlKeys + `
  LEFT JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
  LEFT JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name`,
		Args: []string{"calls"},
	},

	UnlockLeft: databases.Statement{
		Name: "advisory.release-left",
		SQL: `SELECT CASE RELEASE_LOCK(k.lock_key) WHEN 1 THEN ` + mysqlNotOurs("k.lock_key") + ` ELSE 1 END
  FROM JSON_TABLE(CONVERT(UNHEX(?) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (lock_key VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$')) k`,
		Args: []string{"keys"},
	},
}

// MySQLUnlocked frees a named lock, and is 1 if the session had it and has it no more. A session has a named lock as often as it
// was given it. Only 1 says that it had it: 0 is somebody else's, NULL nobody's.
func MySQLUnlocked(key string) string {
	return `CASE RELEASE_LOCK(` + key + `) WHEN 1 THEN ` + mysqlNotOurs(key) + ` ELSE 0 END`
}

func mysqlNotOurs(key string) string {
	return `COALESCE(IS_USED_LOCK(` + key + `), 0) <> CONNECTION_ID()`
}

// mysqlKeys are the names and owners of the calls with their named locks.
var mysqlKeys = mysqlCalls(mysqlKey, mysqlKeyPath)
