package record

import "github.com/sqllock/sqllock/databases"

// Statements are what a strategy sends about its grants, in one dialect. Those
// of the strategies that keep the lease in the lock's own row are below;
// package insert has its own.
type Statements struct {
	// Create makes the name's rows, if they are not there.
	Create []databases.Statement
	// Acquire grants the name if it is free, and draws the token: the last of as
	// many as the request reserves, and about the microsecond of now, so that
	// tokens follow the clock however many are reserved. PostgreSQL
	// and SQLite return a row with the token or none; MySQL's token is the
	// insert id of the answer, zero if the name was not free.
	Acquire databases.Statement
	// State reads the name's rows without a lock: see (*Store).State.
	State databases.Statement
	// Renew, Release and ReleaseLater act on one owner's grant. ReleaseLater
	// keeps the name taken until its minimum hold is over. Release tells whether
	// somebody waits: PostgreSQL and SQLite return a row that says so, MySQL's
	// insert id is 1 then. On PostgreSQL both also tell those who listen.
	Renew        databases.Statement
	Release      databases.Statement
	ReleaseLater databases.Statement
	// ReleaseTx is the release in a caller's transaction, and BeforeReleaseTx
	// what goes before it or before ReleaseLater.
	ReleaseTx       databases.Statement
	BeforeReleaseTx []databases.Statement
	// Register notes that somebody waits for a name that is held. It changes a
	// row if it did. Without it nobody is told of releases.
	Register databases.Statement
	// Force ends a grant of the owner that State told, and notes why. One of
	// them changes a row if there was one.
	Force []databases.Statement
	// Batch are the statements about many grants; nil if there are none.
	Batch *Batch
}

// Batch are the statements about many grants at a time. None of them waits for
// a row that somebody else has locked: that grant is dealt with alone.
type Batch struct {
	// Create makes the names' rows, if they are not there.
	Create []databases.Statement
	// Acquire grants the names that are free. PostgreSQL and SQLite return the
	// owner and the token of each grant, MySQL nothing.
	Acquire databases.Statement
	// State is that for one name with the name before its columns.
	State databases.Statement
	// Renew and Release act on each owner's grant. PostgreSQL and SQLite return
	// the owners, and whether somebody waits; MySQL counts.
	Renew   databases.Statement
	Release databases.Statement
}

// Shared are statements that are the same for every strategy.
type Shared struct {
	// Guard reads the name's row, if the grant is its latest, and locks it
	// against the next grant until the transaction ends.
	Guard databases.Statement
	// Unguarded returns the name if neither a guard nor an acquisition has its
	// row locked; none on SQLite, whose one write lock does not say of which
	// row.
	Unguarded databases.Statement
	// Holders lists the view.
	Holders databases.Statement
	// Expired lists names whose grant ran out, and End ends one of them.
	// ExpiredInserts and EndInsert do so for strategy insert.
	Expired        databases.Statement
	End            databases.Statement
	ExpiredInserts databases.Statement
	EndInsert      []databases.Statement
	// Idle lists names not used for the retention, and Remove deletes the
	// rows of one of them.
	Idle   databases.Statement
	Remove []databases.Statement
}

// The clocks, read at the moment of decision.
//
// PostgreSQL's now() and statement_timestamp() are older than the statement's
// work by whatever it waited; clock_timestamp() is not
// (https://www.postgresql.org/docs/current/functions-datetime.html#FUNCTIONS-DATETIME-CURRENT).
//
// MySQL's UTC_TIMESTAMP(6) is the start of the statement. That is the moment of
// decision in an acquisition, which never waits for a row lock. A renewal may
// wait; it adds what passed since, which SYSDATE tells
// (https://dev.mysql.com/doc/refman/9.7/en/date-and-time-functions.html#function_sysdate).
// SYSDATE has no UTC form, so the difference of two local times is taken, and
// not used where it is negative: that is the hour that summer time ends.
//
// SQLite reads the clock once a statement, after it has the write lock, in
// milliseconds (https://www.sqlite.org/lang_datefunc.html).
const (
	PostgresMicros = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	MySQLNow       = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
	MySQLLate      = MySQLNow + ` + GREATEST(0, TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)))`
	SQLiteNow      = `CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000`
)

// PostgresAsync is a condition, always true, that lets the commit of its statement
// not wait for the disk nor for a standby, unless the placeholder says that the
// release is to be durable. It holds for the statement's own transaction
// (https://www.postgresql.org/docs/current/wal-async-commit.html). What comes later
// in the log and is durable makes this durable, too: no later grant is there
// without the release.
func PostgresAsync(durable string) string {
	return `set_config('synchronous_commit', CASE WHEN ` + durable + `::boolean THEN current_setting('synchronous_commit') ELSE 'off' END, true) <> ''`
}

// Channel is where PostgreSQL's releases are told, with the name as payload.
const Channel = "sqllock_released"

// postgresTell is true if somebody waits, who is told then. A notification takes
// a lock of the whole server at the commit, so there is none otherwise.
const postgresTell = `CASE WHEN waiting_until > clock_timestamp() THEN pg_notify('` + Channel + `', l.name) IS NOT NULL ELSE false END`

// Lease returns the statements of the strategies whose lease is in the lock's
// own row: cas, where the row is the lock, and forupdate and advisory, where it
// stands beside the session that is.
func Lease(d databases.Dialect) (Statements, bool) {
	s, ok := lease[d]
	s.Batch = batches[d]

	return s, ok
}

// The statements as they run. Args names the values in order.
var lease = map[databases.Dialect]Statements{
	databases.Postgres: {
		Create: []databases.Statement{{
			Name: "record.create",
			SQL:  `INSERT INTO sqllock_locks (name) VALUES ($1) ON CONFLICT DO NOTHING`,
			Args: []string{"name"},
		}},

		// FOR UPDATE, and not the weaker lock that an UPDATE of these columns
		// takes by itself: it is what a guard's FOR KEY SHARE stops. SKIP
		// LOCKED: a try waits neither for a guard nor for another try. A row
		// that changed since the statement began is judged again as it is now,
		// with a fresh clock
		// (https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED).
		//
		// owner = $2 makes an attempt repeatable whose answer was lost, and
		// one that arrives late harmless: the token stays, and the lease is
		// not shortened.
		// strategy = $10 is for connection-held locks: who has the session's
		// lock need not wait for the lease of one whose session has ended, see
		// Instead.
		Acquire: databases.Statement{
			Name: "record.acquire",
			SQL: `WITH free AS (
    SELECT name FROM sqllock_locks
     WHERE name = $1
       AND (expires_at + lock_delay_us * interval '1 microsecond' <= clock_timestamp() OR owner = $2
            OR strategy = $10 AND (token = $11::bigint OR $11::bigint < 0))
       FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token + $12::bigint, ` + PostgresMicros + `) END,
       owner = $2, expires_at = greatest(CASE WHEN l.owner = $2 THEN l.expires_at END,
                                         clock_timestamp() + $3::bigint * interval '1 microsecond'),
       lock_delay_us = $4, acquired_at = clock_timestamp(), host = $5, pid = $6, label = $7, metadata = $8, strategy = $9, ended = ''
  FROM free
 WHERE l.name = free.name
RETURNING l.token`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "session", "seen", "tokens"},
		},

		State: databases.Statement{
			Name: "record.state",
			SQL: `SELECT owner, token, ended, (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint,
       lock_delay_us, host, pid, label, metadata
  FROM sqllock_locks WHERE name = $1`,
			Args: []string{"name"},
		},

		// greatest: a renewal that was held up on its way never shortens what
		// Extend gave meanwhile.
		Renew: databases.Statement{
			Name: "record.renew",
			SQL: `UPDATE sqllock_locks
   SET expires_at = greatest(expires_at, clock_timestamp() + $3::bigint * interval '1 microsecond')
 WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner", "lease"},
		},
		Release: databases.Statement{
			Name: "record.release",
			SQL: `UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
 WHERE name = $1 AND owner = $2 AND ` + PostgresAsync("$3") + `
RETURNING ` + postgresTell,
			Args: []string{"name", "owner", "durable"},
		},
		ReleaseTx: databases.Statement{
			Name: "record.release",
			SQL: `UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
 WHERE name = $1 AND owner = $2
RETURNING ` + postgresTell,
			Args: []string{"name", "owner"},
		},
		// The row is locked by whoever releases it, so either this comes first
		// and the release tells, or it finds the name free. Its loss in a crash
		// costs a poll.
		Register: databases.Statement{
			Name: "record.register",
			SQL: `UPDATE sqllock_locks
   SET waiting_until = greatest(waiting_until, clock_timestamp() + $2::bigint * interval '1 microsecond')
 WHERE name = (SELECT name FROM sqllock_locks WHERE name = $1 AND owner <> '' AND expires_at > clock_timestamp()
                  FOR NO KEY UPDATE SKIP LOCKED) AND ` + PostgresAsync("false"),
			Args: []string{"name", "for"},
		},
		ReleaseLater: databases.Statement{
			Name: "record.release-later",
			SQL: `UPDATE sqllock_locks l
   SET owner = '', expires_at = acquired_at + $3::bigint * interval '1 microsecond', lock_delay_us = 0
 WHERE name = $1 AND owner = $2
RETURNING ` + postgresTell,
			Args: []string{"name", "owner", "min_hold"},
		},
		Force: []databases.Statement{{
			Name: "record.force",
			SQL: `UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0, ended = $3
 WHERE name = $1 AND owner = $2 AND strategy <> 'insert'
RETURNING ` + postgresTell,
			Args: []string{"name", "owner", "ended"},
		}},
	},

	databases.MySQL: {
		Create: []databases.Statement{
			{
				Name: "record.create",
				SQL:  `INSERT INTO sqllock_locks (name) VALUES (?) ON DUPLICATE KEY UPDATE name = sqllock_locks.name`,
				Args: []string{"name"},
			},
			{
				Name: "record.create-lease",
				SQL:  `INSERT INTO sqllock_leases (name) VALUES (?) ON DUPLICATE KEY UPDATE name = sqllock_leases.name`,
				Args: []string{"name"},
			},
		},

		// UPDATE has no SKIP LOCKED, but a derived table has. LIMIT keeps MySQL
		// from merging it into the outer query and STRAIGHT_JOIN from reading
		// the rows to update first, with a lock that waits (seen on 9.7
		// without them; MariaDB 11.8 needs neither).
		//
		// free.owner is the owner before: assignments in an UPDATE of two
		// tables come in no certain order.
		//
		// LAST_INSERT_ID(expr) brings the token back with the answer, so that
		// it is one round trip on servers without UPDATE ... RETURNING
		// (https://dev.mysql.com/doc/refman/9.7/en/information-functions.html#function_last-insert-id).
		Acquire: databases.Statement{
			Name: "record.acquire",
			SQL: `UPDATE (
    SELECT l.name, e.owner FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = ? AND (e.expires_at + l.lock_delay_us <= ` + MySQLNow + ` OR e.owner = ?
            OR l.strategy = ? AND (l.token = ? OR ? < 0))
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_locks l ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e ON e.name = free.name
   SET l.token = LAST_INSERT_ID(IF(free.owner = ?, l.token, GREATEST(l.token + ?, ` + MySQLNow + `))), l.owner = ?, l.lock_delay_us = ?,
       l.acquired_at = ` + MySQLNow + `, l.host = ?, l.pid = ?, l.label = ?, l.metadata = ?, l.strategy = ?, l.ended = '',
       e.owner = ?, e.expires_at = GREATEST(IF(free.owner = ?, e.expires_at, 0), ` + MySQLNow + ` + ?)`,
			Args: []string{
				"name", "owner", "session", "seen", "seen", "owner", "tokens", "owner", "delay", "host", "pid", "label", "metadata", "strategy", "owner",
				"owner", "lease",
			},
		},

		State: databases.Statement{
			Name: "record.state",
			SQL: `SELECT e.owner, l.token, l.ended, e.expires_at - ` + MySQLNow + `, l.lock_delay_us, l.host, l.pid, l.label, l.metadata
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name WHERE l.name = ?`,
			Args: []string{"name"},
		},

		// The lease's own row only: a guard has the other.
		Renew: databases.Statement{
			Name: "record.renew",
			SQL:  `UPDATE sqllock_leases SET expires_at = GREATEST(expires_at, ` + MySQLLate + ` + ?) WHERE name = ? AND owner = ?`,
			Args: []string{"lease", "name", "owner"},
		},
		Release: databases.Statement{
			Name: "record.release",
			SQL: `UPDATE sqllock_leases SET owner = '', expires_at = 0 * LAST_INSERT_ID(waiting_until > ` + MySQLNow + `)
 WHERE name = ? AND owner = ?`,
			Args: []string{"name", "owner"},
		},
		// The insert id of the caller's session is left alone.
		ReleaseTx: databases.Statement{
			Name: "record.release",
			SQL:  `UPDATE sqllock_leases SET owner = '', expires_at = 0 WHERE name = ? AND owner = ?`,
			Args: []string{"name", "owner"},
		},
		Register: databases.Statement{
			Name: "record.register",
			SQL: `UPDATE (
    SELECT name FROM sqllock_leases WHERE name = ? AND owner <> '' AND expires_at > ` + MySQLNow + ` LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET e.waiting_until = GREATEST(e.waiting_until, ` + MySQLNow + ` + ?)`,
			Args: []string{"name", "for"},
		},
		ReleaseLater: databases.Statement{
			Name: "record.release-later",
			SQL: `UPDATE sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
   SET e.owner = '', e.expires_at = l.acquired_at + ? - l.lock_delay_us
 WHERE e.name = ? AND e.owner = ?`,
			Args: []string{"min_hold", "name", "owner"},
		},
		// Both rows at once; or, beside a guard, only the one that it leaves
		// alone: an operator does not wait for the guard, the next holder does.
		Force: []databases.Statement{
			{
				Name: "record.force",
				SQL: `UPDATE (SELECT name FROM sqllock_locks WHERE name = ? LIMIT 1 FOR UPDATE SKIP LOCKED) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET l.owner = '', l.ended = ?, e.owner = '', e.expires_at = 0
 WHERE e.owner = ?`,
				Args: []string{"name", "ended", "owner"},
			},
			{
				Name: "record.force-lease",
				SQL:  `UPDATE sqllock_leases SET owner = '', expires_at = 0 WHERE name = ? AND owner = ?`,
				Args: []string{"name", "owner"},
			},
		},
	},

	databases.SQLite: {
		// One writer at a time: nothing to skip, and the row is made on the way.
		Acquire: databases.Statement{
			Name: "record.acquire",
			SQL: `INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
VALUES (?1, ` + SQLiteNow + `, ?2, ` + SQLiteNow + ` + ?3, ?4, ` + SQLiteNow + `, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + ?10, excluded.token) END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = ''
 WHERE l.expires_at + l.lock_delay_us <= ` + SQLiteNow + ` OR l.owner = excluded.owner
RETURNING token`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "tokens"},
		},
		State: databases.Statement{
			Name: "record.state",
			SQL: `SELECT owner, token, ended, expires_at - ` + SQLiteNow + `, lock_delay_us, host, pid, label, metadata
  FROM sqllock_locks WHERE name = ?1`,
			Args: []string{"name"},
		},
		Renew: databases.Statement{
			Name: "record.renew",
			SQL:  `UPDATE sqllock_locks SET expires_at = max(expires_at, ` + SQLiteNow + ` + ?3) WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner", "lease"},
		},
		Release: databases.Statement{
			Name: "record.release",
			SQL: `UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = ?1 AND owner = ?2
RETURNING waiting_until > ` + SQLiteNow,
			Args: []string{"name", "owner"},
		},
		ReleaseTx: databases.Statement{
			Name: "record.release",
			SQL:  `UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner"},
		},
		Register: databases.Statement{
			Name: "record.register",
			SQL: `UPDATE sqllock_locks SET waiting_until = max(waiting_until, ` + SQLiteNow + ` + ?2)
 WHERE name = ?1 AND owner <> '' AND expires_at > ` + SQLiteNow,
			Args: []string{"name", "for"},
		},
		ReleaseLater: databases.Statement{
			Name: "record.release-later",
			SQL: `UPDATE sqllock_locks SET owner = '', expires_at = acquired_at + ?3, lock_delay_us = 0
 WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner", "min_hold"},
		},
		Force: []databases.Statement{{
			Name: "record.force",
			SQL: `UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0, ended = ?3
 WHERE name = ?1 AND owner = ?2 AND strategy <> 'insert'`,
			Args: []string{"name", "owner", "ended"},
		}},
	},
}

var shared = map[databases.Dialect]Shared{
	databases.Postgres: {
		// FOR KEY SHARE conflicts with the FOR UPDATE of the next acquisition
		// and of the removal of idle rows, and with nothing that a renewal or a
		// release does (https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS).
		Guard: databases.Statement{
			Name: "record.guard",
			SQL:  `SELECT token FROM sqllock_locks WHERE name = $1 AND owner = $2 AND token = $3 FOR KEY SHARE`,
			Args: []string{"name", "owner", "token"},
		},
		// As the next acquisition would lock it.
		Unguarded: databases.Statement{
			Name: "record.unguarded",
			SQL:  `SELECT name FROM sqllock_locks WHERE name = $1 FOR UPDATE SKIP LOCKED`,
			Args: []string{"name"},
		},
		Holders: databases.Statement{
			Name: "record.holders",
			SQL: `SELECT name, strategy, token, host, pid, label, metadata,
       (held_seconds * 1000000)::bigint, (remaining_seconds * 1000000)::bigint, owner
  FROM sqllock_holders WHERE starts_with(name, $1) ORDER BY name LIMIT $2`,
			Args: []string{"prefix", "limit"},
		},
		Expired: databases.Statement{
			Name: "record.expired",
			SQL: `SELECT name FROM sqllock_locks
 WHERE owner <> '' AND strategy <> 'insert'
   AND expires_at + lock_delay_us * interval '1 microsecond' <= clock_timestamp() ORDER BY name LIMIT 1000`,
		},
		// The predicate again, on the row as it is when it is locked: one that
		// was renewed meanwhile stays.
		End: databases.Statement{
			Name: "record.end",
			SQL: `WITH dead AS (
    SELECT name FROM sqllock_locks
     WHERE name = $1 AND owner <> '' AND strategy <> 'insert'
       AND expires_at + lock_delay_us * interval '1 microsecond' <= clock_timestamp()
       FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l SET owner = '', lock_delay_us = 0, ended = 'expired' FROM dead WHERE l.name = dead.name`,
			Args: []string{"name"},
		},
		ExpiredInserts: databases.Statement{
			Name: "record.expired-inserts",
			SQL: `SELECT name FROM sqllock_inserts
 WHERE expires_at + lock_delay_us * interval '1 microsecond' <= clock_timestamp() ORDER BY name LIMIT 1000`,
		},
		EndInsert: []databases.Statement{
			{
				Name: "record.end-insert",
				SQL: `DELETE FROM sqllock_inserts WHERE name = (
    SELECT name FROM sqllock_inserts
     WHERE name = $1 AND expires_at + lock_delay_us * interval '1 microsecond' <= clock_timestamp()
       FOR UPDATE SKIP LOCKED)`,
				Args: []string{"name"},
			},
			{
				Name: "record.note-insert",
				SQL: `UPDATE sqllock_locks SET ended = 'expired'
 WHERE name = (SELECT name FROM sqllock_locks WHERE name = $1 AND strategy = 'insert' FOR UPDATE SKIP LOCKED)
   AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = $1)`,
				Args: []string{"name"},
			},
		},
		// The token is about the microsecond of the last grant.
		Idle: databases.Statement{
			Name: "record.idle",
			SQL: `SELECT name FROM sqllock_locks l
 WHERE (owner = '' OR strategy = 'insert') AND expires_at <= clock_timestamp() AND token < ` + PostgresMicros + ` - $1::bigint
   AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = l.name) ORDER BY name LIMIT 1000`,
			Args: []string{"retention"},
		},
		Remove: []databases.Statement{
			{
				Name: "record.remove",
				SQL: `DELETE FROM sqllock_locks WHERE name = (
    SELECT name FROM sqllock_locks l
     WHERE name = $1 AND (owner = '' OR strategy = 'insert') AND expires_at <= clock_timestamp() AND token < ` + PostgresMicros + ` - $2::bigint
       AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = l.name)
       FOR UPDATE SKIP LOCKED)`,
				Args: []string{"name", "retention"},
			},
			{
				Name: "record.remove-mutex",
				SQL: `DELETE FROM sqllock_mutexes WHERE name = (
    SELECT name FROM sqllock_mutexes m
     WHERE name = $1 AND NOT EXISTS (SELECT 1 FROM sqllock_locks l WHERE l.name = m.name)
       FOR UPDATE SKIP LOCKED)`,
				Args: []string{"name"},
			},
		},
	},

	databases.MySQL: {
		// A locking read: in REPEATABLE READ a plain one would still see the
		// owner of the transaction's snapshot. This form is both MySQL's and
		// MariaDB's.
		Guard: databases.Statement{
			Name: "record.guard",
			SQL:  `SELECT token FROM sqllock_locks WHERE name = ? AND owner = ? AND token = ? LOCK IN SHARE MODE`,
			Args: []string{"name", "owner", "token"},
		},
		// As the next acquisition would lock it.
		Unguarded: databases.Statement{
			Name: "record.unguarded",
			SQL:  `SELECT name FROM sqllock_locks WHERE name = ? FOR UPDATE SKIP LOCKED`,
			Args: []string{"name"},
		},
		Holders: databases.Statement{
			Name: "record.holders",
			SQL: `SELECT name, strategy, token, host, pid, label, metadata,
       CAST(held_seconds * 1000000 AS SIGNED), CAST(remaining_seconds * 1000000 AS SIGNED), owner
  FROM sqllock_holders
 WHERE LEFT(CAST(name AS BINARY), LENGTH(?)) = CAST(? AS BINARY) ORDER BY CAST(name AS BINARY) LIMIT ?`,
			Args: []string{"prefix", "prefix", "limit"},
		},
		// Names are listed first and ended one by one: a range UPDATE or DELETE
		// deadlocks with renewals.
		Expired: databases.Statement{
			Name: "record.expired",
			SQL: `SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE e.owner <> '' AND e.expires_at + l.lock_delay_us <= ` + MySQLNow + ` ORDER BY l.name LIMIT 1000`,
		},
		End: databases.Statement{
			Name: "record.end",
			SQL: `UPDATE (
    SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = ? AND e.owner <> '' AND e.expires_at + l.lock_delay_us <= ` + MySQLNow + `
     LIMIT 1 FOR UPDATE SKIP LOCKED
) dead
STRAIGHT_JOIN sqllock_locks l ON l.name = dead.name
STRAIGHT_JOIN sqllock_leases e ON e.name = dead.name
   SET l.ended = 'expired', e.owner = ''`,
			Args: []string{"name"},
		},
		ExpiredInserts: databases.Statement{
			Name: "record.expired-inserts",
			SQL: `SELECT name FROM sqllock_inserts WHERE expires_at + lock_delay_us <= ` + MySQLNow + `
 ORDER BY name LIMIT 1000`,
		},
		EndInsert: []databases.Statement{
			{
				Name: "record.end-insert",
				SQL:  `DELETE FROM sqllock_inserts WHERE name = ? AND expires_at + lock_delay_us <= ` + MySQLNow,
				Args: []string{"name"},
			},
			{
				Name: "record.note-insert",
				SQL: `UPDATE (SELECT name FROM sqllock_locks WHERE name = ? AND strategy = 'insert' LIMIT 1 FOR UPDATE SKIP LOCKED) gone
STRAIGHT_JOIN sqllock_locks l ON l.name = gone.name
   SET l.ended = 'expired'
 WHERE NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = l.name)`,
				Args: []string{"name"},
			},
		},
		Idle: databases.Statement{
			Name: "record.idle",
			SQL: `SELECT l.name FROM sqllock_locks l
  LEFT JOIN sqllock_leases e ON e.name = l.name LEFT JOIN sqllock_inserts i ON i.name = l.name
 WHERE i.name IS NULL AND COALESCE(e.owner, '') = '' AND COALESCE(e.expires_at, 0) + l.lock_delay_us <= ` + MySQLNow + `
   AND l.token < ` + MySQLNow + ` - ? ORDER BY l.name LIMIT 1000`,
			Args: []string{"retention"},
		},
		Remove: []databases.Statement{
			{
				Name: "record.remove",
				SQL: `DELETE l, e FROM sqllock_locks l
  LEFT JOIN sqllock_leases e ON e.name = l.name LEFT JOIN sqllock_inserts i ON i.name = l.name
 WHERE l.name = ? AND i.name IS NULL AND COALESCE(e.owner, '') = ''
   AND COALESCE(e.expires_at, 0) + l.lock_delay_us <= ` + MySQLNow + ` AND l.token < ` + MySQLNow + ` - ?`,
				Args: []string{"name", "retention"},
			},
			{
				Name: "record.remove-mutex",
				SQL: `DELETE m FROM sqllock_mutexes m LEFT JOIN sqllock_locks l ON l.name = m.name
 WHERE m.name = ? AND l.name IS NULL`,
				Args: []string{"name"},
			},
		},
	},

	databases.SQLite: {
		// Writes, so that the transaction has SQLite's one write lock from here
		// on: a read alone would not keep a take-over from committing first.
		Guard: databases.Statement{
			Name: "record.guard",
			SQL: `UPDATE sqllock_locks SET token = token WHERE name = ?1 AND owner = ?2 AND token = ?3
RETURNING token`,
			Args: []string{"name", "owner", "token"},
		},
		Holders: databases.Statement{
			Name: "record.holders",
			SQL: `SELECT name, strategy, token, host, pid, label, metadata,
       CAST(held_seconds * 1000000 AS INTEGER), CAST(remaining_seconds * 1000000 AS INTEGER), owner
  FROM sqllock_holders WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name LIMIT ?2`,
			Args: []string{"prefix", "limit"},
		},
		Expired: databases.Statement{
			Name: "record.expired",
			SQL: `SELECT name FROM sqllock_locks
 WHERE owner <> '' AND strategy <> 'insert' AND expires_at + lock_delay_us <= ` + SQLiteNow + ` LIMIT 1000`,
		},
		End: databases.Statement{
			Name: "record.end",
			SQL: `UPDATE sqllock_locks SET owner = '', lock_delay_us = 0, ended = 'expired'
 WHERE name = ?1 AND owner <> '' AND strategy <> 'insert' AND expires_at + lock_delay_us <= ` + SQLiteNow,
			Args: []string{"name"},
		},
		ExpiredInserts: databases.Statement{
			Name: "record.expired-inserts",
			SQL:  `SELECT name FROM sqllock_inserts WHERE expires_at + lock_delay_us <= ` + SQLiteNow + ` LIMIT 1000`,
		},
		EndInsert: []databases.Statement{
			{
				Name: "record.end-insert",
				SQL:  `DELETE FROM sqllock_inserts WHERE name = ?1 AND expires_at + lock_delay_us <= ` + SQLiteNow,
				Args: []string{"name"},
			},
			{
				Name: "record.note-insert",
				SQL: `UPDATE sqllock_locks SET ended = 'expired'
 WHERE name = ?1 AND strategy = 'insert' AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = ?1)`,
				Args: []string{"name"},
			},
		},
		Idle: databases.Statement{
			Name: "record.idle",
			SQL: `SELECT name FROM sqllock_locks l
 WHERE (owner = '' OR strategy = 'insert') AND expires_at <= ` + SQLiteNow + ` AND token < ` + SQLiteNow + ` - ?1
   AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = l.name) LIMIT 1000`,
			Args: []string{"retention"},
		},
		Remove: []databases.Statement{{
			Name: "record.remove",
			SQL: `DELETE FROM sqllock_locks
 WHERE name = ?1 AND (owner = '' OR strategy = 'insert') AND expires_at <= ` + SQLiteNow + ` AND token < ` + SQLiteNow + ` - ?2
   AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = sqllock_locks.name)`,
			Args: []string{"name", "retention"},
		}},
	},
}
