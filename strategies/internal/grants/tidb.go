package grants

import (
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// TiDBNow is TiDB's clock: the millisecond of the timestamp that the transaction began with, which
// all servers of a cluster are given by one clock, that of its placement driver
// (https://docs.pingcap.com/tidb/stable/tso/). UTC_TIMESTAMP is each server's own. It is taken before the row is
// locked, so that a lease ends no earlier than another transaction believes; and after the client sent its request, so
// that the lease is no shorter than the client believes.
//
// Outside a transaction it is NULL, by which nothing is free. The function TIDB_CURRENT_TSO() tells the same, but a plan
// that was kept for a prepared statement has it as a constant; a statement with a variable is planned anew each time.
const TiDBNow = `(CAST(NULLIF(@@tidb_current_ts, 0) AS SIGNED) DIV 262144 * 1000)`

// OnTiDB is a statement of MySQL's with the clock of TiDB.
func OnTiDB(statement databases.Statement) databases.Statement {
	statement.SQL = strings.ReplaceAll(statement.SQL, MySQLNow, TiDBNow)

	return statement
}

// tidbToken is the token that an acquisition draws from the rows l and e. It is the same in each
// statement of a transaction that has them locked, as the clock is.
const tidbToken = `IF(e.owner = UNHEX(?), l.token, GREATEST(l.token + ?, ` + TiDBNow + `))`

// TiDB is the dialect of TiDB. SKIP LOCKED is taken there and ignored, and refused in a derived table, so that rows are
// locked first, by a query with NOWAIT, and then changed: package databases/tidb sends such statements one after the
// other in one transaction, until a query finds nothing.
//
// The token comes from that query, and never from LAST_INSERT_ID(expr): a statement that the server has executed
// once more by itself, because of others who changed the row, may tell what it computed the first time.
var TiDB = MySQL.With(databases.TiDB, func(d *Dialect) {
	d.InsertID = false
	d.OneByOne = true // there is no JSON_TABLE
	d.Resolution = time.Millisecond
	d.Call = nil

	for _, statement := range []*databases.Statement{
		&d.State, &d.Renew, &d.Holders, &d.Slots, &d.Expired, &d.Idle, &d.Forgotten, &d.Remove.Lock, &d.Remove.LockForgotten, &d.Create[0], &d.Notes, &d.Ask,
		&d.Shares.Enter, &d.Shares.Keep, &d.Shares.Prolong, &d.Shares.Phase, &d.Shares.Longest, &d.Shares.Reader,
		&d.Shares.Shorten, &d.Shares.Stale, &d.Shares.Clear,
		&d.Enqueue[0], &d.Keep, &d.Stand, &d.Waiters, &d.Dead,
	} {
		*statement = OnTiDB(*statement)
	}

	d.Acquire = databases.Statement{
		Name: "grant.acquire",
		SQL: `SELECT ` + tidbToken + `
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(?) AND l.token <> 0 AND (e.expires_at + l.lock_delay_us <= ` + TiDBNow + ` OR e.owner = UNHEX(?))
   AND (e.waiting = 0 OR ? OR e.owner = UNHEX(?))
   FOR UPDATE NOWAIT;
UPDATE sqllock_leases was JOIN sqllock_locks l ON l.name = was.name JOIN sqllock_leases e ON e.name = was.name
   SET l.token = ` + strings.Replace(tidbToken, "e.owner", "was.owner", 1) + `, l.owner = UNHEX(?), l.lock_delay_us = ?,
       l.acquired_at = ` + TiDBNow + `, l.host = UNHEX(?), l.pid = ?, l.label = UNHEX(?), l.metadata = UNHEX(?), l.strategy = UNHEX(?),
       e.ended = '', e.owner = UNHEX(?), e.wait = UNHEX(?),
       e.waiting = IF(was.waiting = ? AND was.waiting < ` + TiDBNow + ` - 5000000, 0, was.waiting),
       e.expires_at = GREATEST(IF(was.owner = UNHEX(?), was.expires_at, 0), ` + TiDBNow + ` + ?)
 WHERE was.name = UNHEX(?)`,
		Args: []string{
			"owner", "tokens", "name", "owner", "first", "owner",
			"owner", "tokens", "owner", "delay", "host", "pid", "label", "metadata", "strategy", "owner", "wait", "line", "owner", "lease", "name",
		},
	}

	d.Raise = databases.Statement{
		Name: "grant.raise",
		SQL: `SELECT GREATEST(l.token, ?) FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(?) AND e.owner = UNHEX(?) FOR UPDATE NOWAIT;
UPDATE sqllock_locks SET token = GREATEST(token, ?) WHERE name = UNHEX(?)`,
		Args: []string{"token", "name", "owner", "token", "name"},
	}

	d.Release = tidbRelease("grant.release", ``, "name", "owner")

	d.Force[0] = databases.Statement{
		Name: "grant.force",
		SQL: `SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(?) AND e.owner = UNHEX(?) AND l.token = ? FOR UPDATE NOWAIT;
UPDATE sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
   SET l.owner = '', e.ended = IF(UNHEX(?) = '', e.ended, UNHEX(?)), e.owner = '', e.expires_at = 0, l.lock_delay_us = 0
 WHERE l.name = UNHEX(?)`,
		Args: []string{"name", "owner", "token", "owner", "ended", "name"},
	}

	// There is no shared row lock, and a query sees rows as they are now if it locks them, also in a subquery: GuardSnapshot
	// and GuardWrite are sent. In an optimistic transaction the write is what the commit fails by.
	d.Guard = databases.Statement{}

	d.Date = databases.Statement{
		Name: "grant.date",
		SQL: `SELECT name FROM sqllock_locks WHERE name = UNHEX(?) AND owner = UNHEX(?) AND token = ? FOR UPDATE NOWAIT;
UPDATE sqllock_locks SET acquired_at = GREATEST(acquired_at + 1, ` + TiDBNow + `) WHERE name = UNHEX(?)`,
		Args: []string{"name", "owner", "token", "name"},
	}

	d.Unguarded = databases.Statement{
		Name: "grant.unguarded",
		SQL:  `SELECT name FROM sqllock_locks WHERE name = UNHEX(?) FOR UPDATE NOWAIT`,
		Args: []string{"name"},
	}

	d.End = databases.Statement{
		Name: "grant.end",
		SQL: `SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(?) AND e.owner <> '' AND e.expires_at + l.lock_delay_us <= ` + TiDBNow + ` FOR UPDATE NOWAIT;
UPDATE sqllock_leases SET ended = 'expired', owner = '' WHERE name = UNHEX(?)`,
		Args: []string{"name", "name"},
	}

	// Without SKIP LOCKED, and there is no forupdate.
	d.Remove.Begin = []databases.Statement{groupBegin}
	d.Remove.Leftovers = [][2]databases.Statement{mysqlLeftover("sqllock_inserts")}

	for _, lock := range []*databases.Statement{&d.Remove.Lock, &d.Remove.LockForgotten, &d.Remove.Leftovers[0][0]} {
		lock.SQL = strings.Replace(lock.SQL, "SKIP LOCKED", "NOWAIT", 1)
	}

	d.ManyPrimaries = databases.Statement{}

	d.Shares.Join = databases.Statement{
		Name: "share.join",
		SQL: `SELECT name FROM sqllock_leases
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND expires_at > ` + TiDBNow + ` AND (waiting = 0 OR ?) FOR UPDATE NOWAIT;
UPDATE sqllock_leases
   SET expires_at = GREATEST(expires_at, ` + TiDBNow + ` + ?), joins = joins + 1,
       waiting = IF(waiting = ? AND waiting < ` + TiDBNow + ` - 5000000, 0, waiting)
 WHERE name = UNHEX(?)`,
		Args: []string{"name", "phase", "first", "lease", "line", "name"},
	}
	d.Shares.End = tidbRelease("share.end", ` AND joins = ?`, "name", "owner", "joins")

	d.Enqueue[1] = databases.Statement{
		Name: "queue.wait",
		SQL: `SELECT expires_at > ` + TiDBNow + ` FROM sqllock_leases
 WHERE name = UNHEX(?) AND waiting < ` + TiDBNow + ` - 2000000 FOR UPDATE NOWAIT;
UPDATE sqllock_leases SET waiting = ` + TiDBNow + ` WHERE name = UNHEX(?)`,
		Args: []string{"name", "name"},
	}
	// One that somebody has locked leaves the others as they are, too: who waits is known by the rows alone that
	// are not.
	d.EnqueueSlots = databases.Statement{
		Name: "queue.enqueue-slots",
		SQL: `SELECT name FROM sqllock_leases
 WHERE name > UNHEX(?) AND name < UNHEX(?) AND waiting < ` + TiDBNow + ` - 2000000 FOR UPDATE NOWAIT;
UPDATE sqllock_leases SET waiting = ` + TiDBNow + `
 WHERE name > UNHEX(?) AND name < UNHEX(?) AND waiting < ` + TiDBNow + ` - 2000000`,
		Args: []string{"above", "below", "above", "below"},
	}
	d.EnqueueAll = []databases.Statement{
		{Name: "queue.enqueue-each", SQL: d.Enqueue[0].SQL, Args: d.Enqueue[0].Args},
		{Name: "queue.wait-each", SQL: d.Enqueue[1].SQL, Args: d.Enqueue[1].Args},
		{
			Name: "queue.taken-each",
			SQL:  `SELECT name, expires_at > ` + TiDBNow + ` FROM sqllock_leases WHERE name = UNHEX(?) AND waiting > ` + TiDBNow + ` - 3000000`,
			Args: []string{"name"},
		},
	}
	d.Leave = databases.Statement{
		Name: "queue.leave",
		SQL: `DELETE FROM sqllock_queue
 WHERE process = UNHEX(?) AND JSON_CONTAINS(JSON_EXTRACT(CONVERT(UNHEX(?) USING utf8mb4), _utf8mb4'$[*].id'), JSON_QUOTE(CONVERT(id USING utf8mb4)))`,
		Args: []string{"process", "waiters"},
	}
	d.First = databases.Statement{}
})

// tidbRelease frees a name's row, and tells whether somebody waits.
func tidbRelease(name, and string, args ...string) databases.Statement {
	which := ` FROM sqllock_leases WHERE name = UNHEX(?) AND owner = UNHEX(?)` + and

	return databases.Statement{
		Name: name,
		SQL: `SELECT waiting <> 0` + which + ` FOR UPDATE;
UPDATE sqllock_leases SET owner = '', expires_at = 0` + strings.TrimPrefix(which, ` FROM sqllock_leases`),
		Args: append(args, args...),
	}
}
