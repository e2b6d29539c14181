package grants

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// MySQLNow is MySQL's clock: the start of the statement, in UTC. That is the moment of decision in an acquisition, which never
// waits for a row lock. A renewal may wait, and gives a lease that is shorter by the wait, but no shorter than its holder
// trusts, who counts from before the statement was sent.
//
// SYSDATE would tell the time after the wait, but only as local time, which goes forward by an hour when summer time begins
// (https://dev.mysql.com/doc/refman/9.7/en/date-and-time-functions.html#function_sysdate).
const MySQLNow = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// MySQLAcquire is the compare-and-set of all strategies: it grants the name if it is free.
//
// UPDATE has no SKIP LOCKED, but a derived table has. LIMIT keeps MySQL from merging it
// into the outer query and STRAIGHT_JOIN from reading the rows to update first, with a
// lock that waits (seen on 9.7 without them; MariaDB 11.8 needs neither).
//
// free.mine is about the owner before: assignments in an UPDATE of two tables come in no
// certain order.
//
// LAST_INSERT_ID(expr) brings the token back with the answer, so that it is one round
// trip on servers without UPDATE ... RETURNING
// (https://dev.mysql.com/doc/refman/9.7/en/information-functions.html#function_last-insert-id).
func MySQLAcquire(name string) databases.Statement { return mysqlAcquire(name, "", "", "") }

// MySQLHeld is MySQLAcquire while a session has the lock: nothing is granted if no session has the named lock any more that marks
// it, which is bound as "held".
var MySQLHeld = mysqlAcquire("grant.acquire", "", mysqlInstead, ` AND IS_USED_LOCK(UNHEX(?)) IS NOT NULL`, "session", "seen", "seen", "held")

// mysqlInstead is what Instead says of a lease that runs.
const mysqlInstead = `
            OR l.strategy = UNHEX(?) AND (l.token = ? OR ? < 0)`

// mysqlAcquire is MySQLAcquire, where a lease may also run if what instead says is true, with more conditions before and behind. What
// they bind are args.
func mysqlAcquire(name, before, instead, behind string, args ...string) databases.Statement {
	return databases.Statement{
		Name: name,
		SQL: `UPDATE (
    SELECT l.name, e.owner = UNHEX(?) AS mine, ` + MySQLNow + ` AS moment FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(?) AND ` + before + `l.token <> 0
       AND (e.owner = UNHEX(?) OR (e.waiting = 0 OR ?) AND (e.expires_at + l.lock_delay_us <= ` + MySQLNow + instead + `))` + behind + `
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_locks l ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e ON e.name = free.name
   SET l.token = LAST_INSERT_ID(IF(free.mine, l.token, GREATEST(l.token + ?, free.moment))), l.owner = UNHEX(?), l.lock_delay_us = ?,
       l.acquired_at = free.moment, l.host = UNHEX(?), l.pid = ?, l.label = UNHEX(?), l.metadata = UNHEX(?), l.strategy = UNHEX(?),
       e.ended = '', e.owner = UNHEX(?), e.wait = UNHEX(?),
       e.waiting = IF(e.waiting = ? AND e.waiting < free.moment - 5000000, 0, e.waiting),
       e.expires_at = GREATEST(IF(free.mine, e.expires_at, 0), free.moment + ?)`,
		Args: slices.Concat(
			[]string{"owner", "name", "owner", "first"}, args,
			[]string{"tokens", "owner", "delay", "host", "pid", "label", "metadata", "strategy", "owner", "wait", "line", "lease"},
		),
	}
}

// mariadbLatest goes before what is sent in a caller's transaction, and lets it change a
// row that was changed since the snapshot, as MySQL does: the lease is renewed meanwhile.
// MariaDB rolls the whole transaction back otherwise (error 1020), by default from 11.6.2
// on (https://mariadb.com/docs/server/server-usage/storage-engines/innodb/innodb-system-variables#innodb_snapshot_isolation).
// To MySQL it is a comment.
const mariadbLatest = `/*M!110602 SET STATEMENT innodb_snapshot_isolation=OFF FOR */ `

// mysqlWaiters is what is read of the JSON array of waiters, as mysqlCalls reads calls, which
// has the reasons.
const mysqlWaiters = `(SELECT CONVERT(id USING binary) AS id, CONVERT(name USING binary) AS name, host, pid, label, metadata, holding, waited, shared
          FROM JSON_TABLE(CONVERT(UNHEX(?) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
        id VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.id', name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name',
        host VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.host', pid BIGINT PATH _utf8mb4'$.pid',
        label VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.label', metadata VARCHAR(4096) CHARACTER SET utf8mb4 PATH _utf8mb4'$.metadata',
        holding VARCHAR(8192) CHARACTER SET utf8mb4 PATH _utf8mb4'$.holding', waited BIGINT PATH _utf8mb4'$.waited',
        shared BOOLEAN PATH _utf8mb4'$.shared'
    )) calls LIMIT 1000) a`

// mysqlShared is sharedPrefix, in whatever character set the connection has.
const mysqlShared = `0x7368617265642D`

// mysqlLeft is true of a row whose readers all have left, or died.
const mysqlLeft = `LEFT(e.owner, 7) = ` + mysqlShared + ` AND s.owner IS NULL`

// mysqlHolders lists holders, and each of the readers.
const mysqlHolders = `SELECT l.name, l.strategy, l.token, IF(` + mysqlLeft + `, '', COALESCE(s.host, l.host)),
       IF(` + mysqlLeft + `, 0, COALESCE(s.pid, l.pid)), IF(` + mysqlLeft + `, '', COALESCE(s.label, l.label)),
       IF(` + mysqlLeft + `, '', COALESCE(s.metadata, l.metadata)),
       ` + MySQLNow + ` - COALESCE(s.acquired_at, l.acquired_at), COALESCE(s.expires_at, e.expires_at) - ` + MySQLNow + `, l.lock_delay_us,
       IF(` + mysqlLeft + `, '', COALESCE(s.owner, e.owner)), LEFT(e.owner, 7) = ` + mysqlShared + `
  FROM sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
  LEFT JOIN sqllock_shares s ON s.name = e.name AND s.phase = e.owner AND s.expires_at > ` + MySQLNow

// MySQL is the dialect of MySQL and MariaDB.
var MySQL = Dialect{
	Name:     databases.MySQL,
	InsertID: true,

	// Whole seconds.
	IdleLimit: func(lease time.Duration) any { return roundUp(lease, time.Second) },
	// KILL takes no parameter: MySQL binds them in DML only (error 6413, seen on 9.7).
	Kill: func(kill databases.Statement, id int64) databases.Statement {
		kill.SQL += strconv.FormatInt(id, 10)

		return kill
	},

	// Interrupts the sleep of the session that has the named lock, which databases/mysql
	// listens with. The server finds it, so that no id is ever out of date, or another
	// server's or a proxy's.
	Call: func(process string) databases.Statement {
		return databases.Statement{Name: "queue.call", SQL: fmt.Sprintf(`KILL QUERY IS_USED_LOCK(UNHEX('%x'))`, channelOf+process)}
	},

	Statements: Statements{
		Create: []databases.Statement{
			{
				Name: "grant.create",
				SQL:  `INSERT INTO sqllock_locks (name, acquired_at) VALUES (UNHEX(?), ` + MySQLNow + `) ON DUPLICATE KEY UPDATE name = sqllock_locks.name`,
				Args: []string{"name"},
			},
			{
				Name: "grant.create-lease",
				SQL:  `INSERT INTO sqllock_leases (name) VALUES (UNHEX(?)) ON DUPLICATE KEY UPDATE name = sqllock_leases.name`,
				Args: []string{"name"},
			},
			// The floor is read when the row is locked, as the table that is joined to it.
			{
				Name: "grant.ready",
				SQL: `UPDATE sqllock_locks l LEFT JOIN sqllock_floor f ON true SET l.token = GREATEST(1, COALESCE(f.token, 0))
 WHERE l.name = UNHEX(?) AND l.token = 0`,
				Args: []string{"name"},
			},
		},

		// Of strategies whose locks no session holds: see MySQLHeld and MySQLKeyed for others.
		Acquire: MySQLAcquire("grant.acquire"),

		State: databases.Statement{
			Name: "grant.state",
			SQL: `SELECT e.owner, l.token, e.ended, e.expires_at - ` + MySQLNow + `, l.lock_delay_us, l.host, l.pid, l.label, l.metadata, e.waiting
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name WHERE l.name = UNHEX(?)`,
			Args: []string{"name"},
		},

		// The lease's own row only: a guard has the other.
		Renew: databases.Statement{
			Name: "grant.renew",
			SQL:  `UPDATE sqllock_leases SET expires_at = GREATEST(expires_at, ` + MySQLNow + ` + ?) WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
			Args: []string{"lease", "name", "owner"},
		},

		// The owner of the lease decides, as in a renewal: that in the other row is of the last acquisition, and stays when
		// it is released. Both rows are locked, so that the grant cannot end meanwhile; one that a renewal has is skipped.
		Raise: databases.Statement{
			Name: "grant.raise",
			SQL: `UPDATE (
    SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(?) AND e.owner = UNHEX(?) LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
   SET l.token = LAST_INSERT_ID(GREATEST(l.token, ?))`,
			Args: []string{"name", "owner", "token"},
		},

		Release: databases.Statement{
			Name: "grant.release",
			SQL: `UPDATE sqllock_leases SET owner = '', expires_at = 0 * LAST_INSERT_ID(waiting <> 0)
 WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
			Args: []string{"name", "owner"},
		},

		// The insert id of the caller's session is left alone.
		ReleaseTx: databases.Statement{
			Name: "grant.release-tx",
			SQL:  mariadbLatest + `UPDATE sqllock_leases SET owner = '', expires_at = 0 WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
			Args: []string{"name", "owner"},
		},

		ReleaseLater: databases.Statement{
			Name: "grant.release-later",
			SQL: mariadbLatest + `UPDATE sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
   SET e.owner = '', e.expires_at = l.acquired_at + ? - l.lock_delay_us
 WHERE e.name = UNHEX(?) AND e.owner = UNHEX(?)`,
			Args: []string{"min_hold", "name", "owner"},
		},

		// Both rows at once; or, beside a guard, only the one that it leaves alone,
		// which says why the grant ended: an operator does not wait for the guard, the
		// next holder does.
		Force: []databases.Statement{
			{
				Name: "grant.force",
				SQL: `UPDATE (SELECT name FROM sqllock_locks WHERE name = UNHEX(?) LIMIT 1 FOR UPDATE SKIP LOCKED) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET l.owner = '', e.ended = IF(UNHEX(?) = '', e.ended, UNHEX(?)), e.owner = '', e.expires_at = 0, l.lock_delay_us = 0
 WHERE e.owner = UNHEX(?) AND l.token = ?`,
				Args: []string{"name", "owner", "ended", "owner", "token"},
			},
			{
				Name: "grant.force-lease",
				SQL: `UPDATE sqllock_leases SET ended = UNHEX(?), owner = '', expires_at = 0
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND owner <> ''`,
				Args: []string{"ended", "name", "owner"},
			},
		},

		// A locking read: in REPEATABLE READ a plain one would still see the
		// owner of the transaction's snapshot. This form is both MySQL's and
		// MariaDB's.
		//
		// The subquery is a plain one: the locking clause is of the outer query only
		// (https://dev.mysql.com/doc/refman/9.7/en/innodb-locking-reads.html). It sees
		// the row as the transaction's other reads see it, and if that is not the
		// latest the token is zero. On MariaDB with
		// innodb_snapshot_isolation=ON the locking read refuses by itself.
		Guard: databases.Statement{
			Name: "grant.guard",
			SQL: `SELECT IF(acquired_at = (SELECT s.acquired_at FROM sqllock_locks s WHERE s.name = UNHEX(?) AND s.token = ?), token, 0)
  FROM sqllock_locks WHERE name = UNHEX(?) AND owner = UNHEX(?) AND token = ? LOCK IN SHARE MODE`,
			Args: []string{"name", "token", "name", "owner", "token"},
		},

		GuardSnapshot: databases.Statement{
			Name: "grant.guard-snapshot",
			SQL:  `SELECT acquired_at FROM sqllock_locks WHERE name = UNHEX(?) AND owner = UNHEX(?) AND token = ?`,
			Args: []string{"name", "owner", "token"},
		},
		// A change, and not a write of the same: that enters no write set.
		GuardWrite: databases.Statement{
			Name: "grant.guard-write",
			SQL: `UPDATE sqllock_locks SET guards = guards + 1
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND token = ? AND acquired_at = ?`,
			Args: []string{"name", "owner", "token", "acquired"},
		},

		Date: databases.Statement{
			Name: "grant.date",
			SQL: `UPDATE (
    SELECT name FROM sqllock_locks WHERE name = UNHEX(?) AND owner = UNHEX(?) AND token = ? LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
   SET l.acquired_at = GREATEST(l.acquired_at + 1, ` + MySQLNow + `)`,
			Args: []string{"name", "owner", "token"},
		},

		// As the next acquisition would lock it.
		Unguarded: databases.Statement{
			Name: "grant.unguarded",
			SQL:  `SELECT name FROM sqllock_locks WHERE name = UNHEX(?) FOR UPDATE SKIP LOCKED`,
			Args: []string{"name"},
		},

		// From the tables: the view is for people, in the character set of their
		// connection. No name has a byte FF, so that this is the range of those that begin with the prefix.
		Holders: databases.Statement{
			Name: "grant.holders",
			SQL: mysqlHolders + `
 WHERE e.expires_at + l.lock_delay_us > ` + MySQLNow + ` AND e.name >= UNHEX(?) AND e.name < CONCAT(UNHEX(?), X'FF')
 ORDER BY l.name, s.acquired_at, s.owner LIMIT ?`,
			Args: []string{"prefix", "prefix", "limit"},
		},

		Slots: databases.Statement{
			Name: "grant.slots",
			SQL: mysqlHolders + `
 WHERE (e.name = UNHEX(?) OR e.name > UNHEX(?) AND e.name < UNHEX(?)) AND e.expires_at + l.lock_delay_us > ` + MySQLNow + `
 ORDER BY l.name, s.acquired_at, s.owner LIMIT ?`,
			Args: []string{"name", "above", "below", "limit"},
		},

		// Names are listed first and ended one by one: a range UPDATE or DELETE
		// deadlocks with renewals.
		Expired: databases.Statement{
			Name: "grant.expired",
			SQL: `SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE e.owner <> '' AND e.expires_at + l.lock_delay_us <= ` + MySQLNow + ` ORDER BY l.name LIMIT 1000`,
		},

		End: databases.Statement{
			Name: "grant.end",
			SQL: `UPDATE (
    SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(?) AND e.owner <> '' AND e.expires_at + l.lock_delay_us <= ` + MySQLNow + `
     LIMIT 1 FOR UPDATE SKIP LOCKED
) dead
STRAIGHT_JOIN sqllock_leases e ON e.name = dead.name
   SET e.ended = 'expired', e.owner = ''`,
			Args: []string{"name"},
		},

		Idle:      mysqlFind("grant.idle", mysqlUnnoted),
		Forgotten: mysqlFind("grant.forgotten", mysqlForgotten),
		Remove:    mysqlRemove,

		// A guard locks the name's row in sqllock_locks, and not this one.
		Notes: databases.Statement{
			Name: "notes.read",
			SQL:  `SELECT owner, expires_at - ` + MySQLNow + `, tick, asked FROM sqllock_leases WHERE name = UNHEX(?)`,
			Args: []string{"name"},
		},
		NoteTick: databases.Statement{
			Name: "notes.tick",
			SQL:  mariadbLatest + `UPDATE sqllock_leases SET tick = GREATEST(tick, ?) WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
			Args: []string{"tick", "name", "owner"},
		},
		Ask: databases.Statement{
			Name: "notes.ask",
			SQL: `UPDATE sqllock_leases SET asked = CONCAT(owner, ' ', UNHEX(?))
 WHERE name = UNHEX(?) AND owner <> '' AND expires_at > ` + MySQLNow,
			Args: []string{"reason", "name"},
		},

		Brief: databases.Statement{
			Name: "grant.brief",
			SQL: `SET @sqllock_lock_wait = CAST(COALESCE(@sqllock_lock_wait, @@SESSION.innodb_lock_wait_timeout) AS UNSIGNED), ` +
				`SESSION innodb_lock_wait_timeout = 1`,
		},

		Patient: databases.Statement{
			Name: "grant.patient",
			SQL: `SET SESSION innodb_lock_wait_timeout = CAST(COALESCE(@sqllock_lock_wait, @@GLOBAL.innodb_lock_wait_timeout) AS UNSIGNED), ` +
				`@sqllock_lock_wait = NULL`,
		},

		ManyPrimaries: databases.Statement{
			Name: "grant.many-primaries",
			SQL: `SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
    OR (Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF')`,
		},

		// Of the name's rows only the lease's, as a renewal does: a guard has the other.
		Shares: Shares{
			Enter: databases.Statement{
				Name: "share.enter",
				SQL: `INSERT INTO sqllock_shares (name, owner, phase, expires_at, acquired_at, host, pid, label, metadata)
VALUES (UNHEX(?), UNHEX(?), UNHEX(?), ` + MySQLNow + ` + ?, ` + MySQLNow + `, UNHEX(?), ?, UNHEX(?), UNHEX(?))
    ON DUPLICATE KEY UPDATE expires_at = IF(phase = UNHEX(?), GREATEST(expires_at, ` + MySQLNow + ` + ?), ` + MySQLNow + ` + ?), phase = UNHEX(?)`,
				Args: []string{"name", "owner", "phase", "lease", "host", "pid", "label", "metadata", "phase", "lease", "lease", "phase"},
			},
			Keep: databases.Statement{
				Name: "share.keep",
				SQL: `UPDATE sqllock_shares SET expires_at = GREATEST(expires_at, ` + MySQLNow + ` + ?)
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND phase = UNHEX(?)`,
				Args: []string{"lease", "name", "owner", "phase"},
			},
			Leave: databases.Statement{
				Name: "share.leave",
				SQL:  `DELETE FROM sqllock_shares WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
				Args: []string{"name", "owner"},
			},
			Join: databases.Statement{
				Name: "share.join",
				SQL: `UPDATE (
    SELECT name FROM sqllock_leases
     WHERE name = UNHEX(?) AND owner = UNHEX(?) AND expires_at > ` + MySQLNow + ` AND (waiting = 0 OR ?)
     LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET e.expires_at = GREATEST(e.expires_at, ` + MySQLNow + ` + ?), e.joins = e.joins + 1,
       e.waiting = IF(e.waiting = ? AND e.waiting < ` + MySQLNow + ` - 5000000, 0, e.waiting)`,
				Args: []string{"name", "phase", "first", "lease", "line"},
			},
			Prolong: databases.Statement{
				Name: "share.prolong",
				SQL: `UPDATE sqllock_leases SET expires_at = GREATEST(expires_at, ` + MySQLNow + ` + ?), joins = joins + 1
 WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
				Args: []string{"lease", "name", "phase"},
			},
			Phase: databases.Statement{
				Name: "share.phase",
				SQL:  `SELECT owner, joins, expires_at - ` + MySQLNow + ` FROM sqllock_leases WHERE name = UNHEX(?)`,
				Args: []string{"name"},
			},
			Longest: databases.Statement{
				Name: "share.longest",
				SQL:  `SELECT COALESCE(MAX(expires_at) - ` + MySQLNow + `, 0) FROM sqllock_shares WHERE name = UNHEX(?) AND phase = UNHEX(?)`,
				Args: []string{"name", "phase"},
			},
			Reader: databases.Statement{
				Name: "share.reader",
				SQL:  `SELECT phase, expires_at - ` + MySQLNow + ` FROM sqllock_shares WHERE name = UNHEX(?) AND owner = UNHEX(?)`,
				Args: []string{"name", "owner"},
			},
			Readers: databases.Statement{
				Name: "share.readers",
				SQL:  `SELECT owner FROM sqllock_shares WHERE name = UNHEX(?) AND phase = UNHEX(?)`,
				Args: []string{"name", "phase"},
			},
			Holder: databases.Statement{
				Name: "share.holder",
				SQL:  `SELECT host, pid, label, metadata FROM sqllock_shares WHERE name = UNHEX(?) AND phase = UNHEX(?) ORDER BY expires_at DESC LIMIT 1`,
				Args: []string{"name", "phase"},
			},
			End: databases.Statement{
				Name: "share.end",
				SQL: `UPDATE sqllock_leases SET owner = '', expires_at = 0 * LAST_INSERT_ID(waiting <> 0)
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND joins = ?`,
				Args: []string{"name", "owner", "joins"},
			},
			Shorten: databases.Statement{
				Name: "share.shorten",
				SQL: `UPDATE sqllock_leases SET expires_at = LEAST(expires_at, ` + MySQLNow + ` + ?)
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND joins = ?`,
				Args: []string{"left", "name", "owner", "joins"},
			},
			Stale: databases.Statement{
				Name: "share.stale",
				SQL:  `SELECT name, owner FROM sqllock_shares WHERE expires_at < ` + MySQLNow + ` - 60000000 ORDER BY name, owner LIMIT 1000`,
			},
			Clear: databases.Statement{
				Name: "share.clear",
				SQL: `DELETE FROM sqllock_shares
 WHERE name = UNHEX(?) AND owner = UNHEX(?) AND expires_at < ` + MySQLNow + ` - 60000000`,
				Args: []string{"name", "owner"},
			},
		},

		// All by the primary key, in which those of a process are together: one after the
		// other by an index, they would be locked in another order by Leave.
		// First the entry, so that nobody who sees the new number misses it. The number
		// changes every two seconds at most, for a commit costs much, and is forgotten when it is
		// five seconds old: who forgets it has seen the line when it was old, and not
		// this entry. Nobody's row lock is waited for.
		Enqueue: []databases.Statement{
			{
				Name: "queue.enqueue",
				SQL: `INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, behind, slots, shared)
VALUES (UNHEX(?), UNHEX(?), UNHEX(?), ` + MySQLNow + ` - ?, ` + MySQLNow + ` + ?, UNHEX(?), ?, UNHEX(?), UNHEX(?), UNHEX(?), ?, ?, ?)
    ON DUPLICATE KEY UPDATE expires_at = ` + MySQLNow + ` + ?, ticket = IF(behind, ` + MySQLNow + ` - ?, ticket), behind = ?`,
				Args: []string{
					"process", "id", "name", "waited", "ttl", "host", "pid", "label", "metadata", "holding", "behind", "slots", "shared", "ttl", "waited", "behind",
				},
			},
			{
				Name: "queue.wait",
				SQL: `UPDATE (
    SELECT name FROM sqllock_leases WHERE name = UNHEX(?) AND waiting < ` + MySQLNow + ` - 2000000 LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET e.waiting = ` + MySQLNow + ` + 0 * LAST_INSERT_ID(e.expires_at > ` + MySQLNow + `)`,
				Args: []string{"name"},
			},
		},
		EnqueueSlots: databases.Statement{
			Name: "queue.enqueue-slots",
			SQL: `UPDATE (
    SELECT name FROM sqllock_leases WHERE name > UNHEX(?) AND name < UNHEX(?) AND waiting < ` + MySQLNow + ` - 2000000
     ORDER BY name LIMIT 1000 FOR UPDATE SKIP LOCKED
) slots
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = slots.name
   SET e.waiting = ` + MySQLNow,
			Args: []string{"above", "below"},
		},
		// The number is fresh enough for as long as nobody forgets it, and what was taken when it was there
		// will be told.
		EnqueueAll: []databases.Statement{
			{
				Name: "queue.enqueue-all",
				SQL: `INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, shared)
SELECT UNHEX(?), a.id, a.name, ` + MySQLNow + ` - a.waited, ` + MySQLNow + ` + ?, a.host, a.pid, a.label, a.metadata, a.holding, a.shared FROM ` + mysqlWaiters + `
    ON DUPLICATE KEY UPDATE expires_at = ` + MySQLNow + ` + ?, ticket = IF(sqllock_queue.behind, ` + MySQLNow + ` - a.waited, sqllock_queue.ticket), behind = false`,
				Args: []string{"process", "ttl", "waiters", "ttl"},
			},
			{
				Name: "queue.wait-all",
				SQL: `UPDATE (
    SELECT e.name FROM ` + mysqlWaiters + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.waiting < ` + MySQLNow + ` - 2000000
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = held.name
   SET e.waiting = ` + MySQLNow,
				Args: []string{"waiters"},
			},
			{
				Name: "queue.taken-all",
				SQL: `SELECT e.name, e.expires_at > ` + MySQLNow + `
  FROM ` + mysqlWaiters + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
 WHERE e.waiting > ` + MySQLNow + ` - 3000000`,
				Args: []string{"waiters"},
			},
		},
		Keep: databases.Statement{
			Name: "queue.keep",
			SQL:  `UPDATE sqllock_queue SET expires_at = ` + MySQLNow + ` + ? WHERE process = UNHEX(?)`,
			Args: []string{"ttl", "process"},
		},
		Leave: databases.Statement{
			Name: "queue.leave",
			SQL: `DELETE q FROM ` + mysqlWaiters + `
STRAIGHT_JOIN sqllock_queue q FORCE INDEX (PRIMARY) ON q.process = UNHEX(?) AND q.id = a.id`,
			Args: []string{"waiters", "process"},
		},
		Stand: databases.Statement{
			Name: "queue.stand",
			SQL: `SELECT q.name, q.id, COALESCE(SUM(o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id), 0),
       COALESCE(MIN(IF(o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id, o.expires_at, NULL)) - ` + MySQLNow + `, 0),
       COALESCE(e.expires_at + l.lock_delay_us - ` + MySQLNow + `, 0), COALESCE(e.waiting, 0),
       COUNT(o.id) + COALESCE(e.waiting > ` + MySQLNow + ` - 2000000, 0), q.slots,
       q.shared, COALESCE(LEFT(e.owner, 7) = ` + mysqlShared + `, 0)
  FROM sqllock_queue q
  LEFT JOIN sqllock_leases e ON e.name = q.name
  LEFT JOIN sqllock_locks l ON l.name = q.name
  LEFT JOIN sqllock_queue o ON o.name = q.name AND o.id <> q.id AND o.id <> COALESCE(e.wait, '') AND NOT o.behind AND o.expires_at > ` + MySQLNow + `
 WHERE q.process = UNHEX(?) AND NOT q.behind
 GROUP BY q.name, q.id, q.ticket, q.slots, q.shared, e.expires_at, l.lock_delay_us, e.waiting, e.owner`,
			Args: []string{"process"},
		},
		Waiters: databases.Statement{
			Name: "queue.waiters",
			SQL: `SELECT q.name, q.process, q.id, q.ticket, ` + MySQLNow + ` - q.ticket, q.host, q.pid, q.label, q.metadata, q.holding, q.behind,
       CASE WHEN e.expires_at > ` + MySQLNow + ` AND q.slots = 1 THEN e.owner ELSE '' END, q.slots, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_leases e ON e.name = q.name
 WHERE q.expires_at > ` + MySQLNow + ` AND q.id <> COALESCE(e.wait, '') AND (LENGTH(UNHEX(?)) = 0 OR q.name = UNHEX(?)) AND LEFT(q.name, LENGTH(UNHEX(?))) = UNHEX(?)
   AND q.name >= UNHEX(?) AND q.name < CONCAT(UNHEX(?), X'FF') AND (NOT ? OR q.holding <> '')
 ORDER BY q.name, q.behind, q.ticket, q.id LIMIT ?`,
			Args: []string{"name", "name", "prefix", "prefix", "from", "from", "holds", "limit"},
		},
		// If none is known to wait, it may be one that could not say so in time.
		First: databases.Statement{
			Name: "queue.first",
			SQL: `SELECT DISTINCT q.process
  FROM JSON_TABLE(CONVERT(UNHEX(?) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name')) a
  JOIN sqllock_queue q ON q.id = (
    SELECT o.id FROM sqllock_queue o LEFT JOIN sqllock_leases e ON e.name = o.name
     WHERE o.name = CONVERT(a.name USING binary) AND NOT o.behind AND o.id <> COALESCE(e.wait, '')
     ORDER BY o.expires_at <= ` + MySQLNow + `, o.ticket, o.id LIMIT 1
  )`,
			Args: []string{"calls"},
		},
		Dead: databases.Statement{
			Name: "queue.dead",
			SQL:  `SELECT process, id FROM sqllock_queue WHERE expires_at < ` + MySQLNow + ` - 60000000 LIMIT 1000`,
		},
	},
}
