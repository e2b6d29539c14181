package grants

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// In PostgreSQL's statements, here and in the other packages, nothing may be
// looked for outside of pg_catalog: who can create an operator or a function in a
// schema of the search_path would have it called, by whoever uses locks. One whose
// argument types match better than those in pg_catalog is taken from there
// (https://www.postgresql.org/docs/current/typeconv-oper.html). So functions and
// views have their schema, and both sides of an operator the very types that
// pg_catalog has it for: bigint * interval is not there, float * interval is.
// float, bigint, boolean, numeric and interval are words of the grammar; text is a
// name, and has its schema. unnest of several arrays is grammar, too, and of
// pg_catalog, but only without the schema.

// PostgreSQL's clock, read at the moment of decision: now() and
// statement_timestamp() are older than the statement's work by whatever it waited;
// clock_timestamp() is not
// (https://www.postgresql.org/docs/current/functions-datetime.html#FUNCTIONS-DATETIME-CURRENT).
const (
	PostgresNow    = `pg_catalog.clock_timestamp()`
	PostgresMicros = `(pg_catalog.date_part('epoch', ` + PostgresNow + `) * 1000000::float)::bigint`
)

// PostgresAtPrimary is a condition, always true, that has a statement which only reads sent to the primary where a proxy
// balances load. pgpool-II goes by the text of a statement: without a volatile function it is sent to any server, and a
// standby shows what was so a moment ago
// (https://www.pgpool.net/docs/latest/en/html/runtime-config-load-balancing.html).
const PostgresAtPrimary = PostgresNow + ` IS NOT NULL`

// PostgresBriefly is a condition, always true, that lets its statement wait for a
// lock for a moment only: an INSERT waits for a transaction that has inserted the
// same name, and has not ended. MySQL's statements have Brief for that.
const PostgresBriefly = `pg_catalog.set_config('lock_timeout', '100ms', true) <> ''`

// PostgresAsync is a condition, always true, that lets the commit of its statement
// not wait for the disk nor for a standby, unless the placeholder says that the
// release is to be durable. It holds for the statement's own transaction
// (https://www.postgresql.org/docs/current/wal-async-commit.html). What comes later
// in the log and is durable makes this durable, too: no later grant is there
// without the release.
func PostgresAsync(durable string) string {
	return `pg_catalog.set_config('synchronous_commit', CASE WHEN ` + durable +
		`::boolean THEN pg_catalog.current_setting('synchronous_commit') ELSE 'off' END, true) <> ''`
}

// PostgresAsyncGrant is PostgresAsync for the grant of a lock that a crash of the server ends, too. What is forgotten then
// is over, and the next token is larger, because tokens follow the clock; only one that is ahead of the clock has to be there.
func PostgresAsyncGrant(token string) string {
	return PostgresAsync(`(` + token + ` > ` + PostgresMicros + `)`)
}

// PostgresHeld makes of Acquire what is sent while a transaction has the lock, which is bound as "held": nothing is
// granted if that has ended.
func PostgresHeld(acquire databases.Statement) databases.Statement {
	acquire.Args = append(slices.Clip(acquire.Args), "held")
	acquire.SQL = strings.Replace(acquire.SQL, "SELECT name FROM", "SELECT name, token FROM", 1)
	acquire.SQL = strings.Replace(acquire.SQL, "\n WHERE l.name = free.name", fmt.Sprintf(`
 WHERE l.name = free.name AND pg_catalog.pg_xact_status($%d::pg_catalog.text::pg_catalog.xid8) = 'in progress'
   AND `, len(acquire.Args))+PostgresAsyncGrant(`free.token + $12::bigint`), 1)

	return acquire
}

// PostgreSQL's releases are told on channels: to the first in line on that of its process, or
// to all who wait for anything.
const (
	channelOf  = "sqllock_" // and the process
	allChannel = "sqllock_released"
)

// postgresLine is the name in whose line those wait who wait for a slot: SlotName of package strategies.
const postgresLine = `pg_catalog.split_part(l.name, pg_catalog.chr(31), 1)`

// postgresSlot is the number of the slot that a row is of.
const postgresSlot = `coalesce(nullif(pg_catalog.split_part(l.name, pg_catalog.chr(31), 2), ''::pg_catalog.text), '0'::pg_catalog.text)::bigint`

// PostgresTell is true if somebody waits, and notifies the first in line: that it is its
// turn, and what Request.Line says; of a slot the first that knows as many. It sees the line as it was when the statement began.
// Who has come since, while the name's row was locked, is not in it; if nobody is, all are
// told to look. A notification takes a lock of the whole server at the commit, so there is none if nobody waits.
//
// The server may refuse it: its queue is full, or the user may not notify. So only releases have it, which are
// sent once more without it then (Store.quietly). Whatever else there is to tell is told by a statement of its own.
const PostgresTell = `CASE WHEN l.waiting <> 0 THEN coalesce((
    SELECT pg_catalog.pg_notify('` + channelOf + `'::pg_catalog.text || f.process,
                                f.line::pg_catalog.text || ' '::pg_catalog.text || f.id || ' '::pg_catalog.text || ` + postgresLine + `) IS NOT NULL
      FROM (SELECT t.process, t.id, CASE WHEN pg_catalog.count(*) OVER () = 1 THEN t.waiting ELSE 0 END AS line, t.ticket
              FROM (SELECT q.process, q.ticket, q.id, s.waiting FROM sqllock_queue q JOIN sqllock_locks s ON s.name = q.name
                     WHERE q.name = ` + postgresLine + ` AND q.slots > ` + postgresSlot + ` AND NOT q.behind AND q.expires_at > ` + PostgresNow + `
                     ORDER BY q.ticket, q.id LIMIT 2) t
             ORDER BY t.ticket, t.id LIMIT 1) f
), pg_catalog.pg_notify('` + allChannel + `', l.name) IS NOT NULL) ELSE false END`

// postgresContended is true if somebody waits.
const postgresContended = `l.waiting <> 0`

func postgresTelling(release databases.Statement) databases.Statement {
	release.SQL = strings.Replace(release.SQL, "RETURNING "+postgresContended, "RETURNING "+PostgresTell, 1)

	return release
}

// untold returns what a release is without its notification, and whether it had one.
func untold(release databases.Statement) (plain databases.Statement, tells bool) {
	plain = release
	plain.SQL = strings.Replace(release.SQL, PostgresTell, postgresContended, 1)

	return plain, plain.SQL != release.SQL
}

// postgresLeaving is the part of an acquisition that takes who has been granted the name out of
// its line.
const postgresLeaving = `queue AS (
    DELETE FROM sqllock_queue q USING free WHERE q.process = $%d AND q.id = $%d
)`

// postgresFromLine puts that behind the first part, which finds the name free.
func postgresFromLine(acquire databases.Statement) databases.Statement {
	n := len(acquire.Args)
	leaving := fmt.Sprintf(postgresLeaving, n+1, n+2)
	acquire.SQL = strings.Replace(acquire.SQL, "\n)", "\n), "+leaving, 1)
	acquire.Args = append(slices.Clip(acquire.Args), "process", "wait")

	return acquire
}

// postgresRead is true of a row that readers have.
const postgresRead = `pg_catalog.starts_with(l.owner, '` + sharedPrefix + `')`

// postgresLeft is true of one whose readers all have left, or died.
const postgresLeft = postgresRead + ` AND s.owner IS NULL`

// postgresReaders are the readers of each row, if they have it.
const postgresReaders = `
  LEFT JOIN sqllock_shares s ON s.name = l.name AND s.phase = l.owner AND s.expires_at > ` + PostgresNow

// postgresHolders lists holders, and each of the readers.
const postgresHolders = `SELECT l.name, l.strategy, l.token, CASE WHEN ` + postgresLeft + ` THEN '' ELSE coalesce(s.host, l.host) END,
       CASE WHEN ` + postgresLeft + ` THEN 0 ELSE coalesce(s.pid, l.pid) END, CASE WHEN ` + postgresLeft + ` THEN '' ELSE coalesce(s.label, l.label) END,
       CASE WHEN ` + postgresLeft + ` THEN '' ELSE coalesce(s.metadata, l.metadata) END,
       (pg_catalog.date_part('epoch', ` + PostgresNow + ` - coalesce(s.acquired_at, l.acquired_at)) * 1000000::float)::bigint,
       (pg_catalog.date_part('epoch', coalesce(s.expires_at, l.expires_at) - ` + PostgresNow + `) * 1000000::float)::bigint, l.lock_delay_us,
       CASE WHEN ` + postgresLeft + ` THEN '' ELSE coalesce(s.owner, l.owner) END, ` + postgresRead + `
  FROM sqllock_locks l` + postgresReaders

// Postgres is the dialect of PostgreSQL.
var Postgres = Dialect{
	Name:     databases.Postgres,
	FromLine: postgresFromLine,
	Telling:  postgresTelling,

	// Text in milliseconds.
	IdleLimit: func(lease time.Duration) any { return fmt.Sprint(roundUp(lease, time.Millisecond)) },

	Statements: Statements{
		Create: []databases.Statement{{
			Name: "grant.create",
			SQL: `INSERT INTO sqllock_locks (name, acquired_at) SELECT $1::pg_catalog.text, ` + PostgresNow + `
 WHERE ` + PostgresBriefly + ` AND ` + PostgresAsync("false") + ` ON CONFLICT DO NOTHING`,
			Args: []string{"name"},
		}, {
			// A snapshot from when the row is there is from after each removal that the INSERT may have waited for.
			Name: "grant.ready",
			SQL: `UPDATE sqllock_locks SET token = ` + PostgresFloor + `
 WHERE name = $1 AND token = 0 AND ` + PostgresBriefly + ` AND ` + PostgresAsync("false"),
			Args: []string{"name"},
		}},

		// As the compare-and-set of package cas, which has the reasons. strategy = $10 is
		// for connection-held locks: whoever has the session's lock need not wait for the
		// lease of one whose session has ended, see Instead.
		Acquire: databases.Statement{
			Name: "grant.acquire",
			SQL: `WITH free AS (
    SELECT name FROM sqllock_locks
     WHERE name = $1 AND token <> 0
       AND (expires_at + lock_delay_us::float * interval '1 microsecond' <= ` + PostgresNow + ` OR owner = $2
            OR strategy = $10 AND (token = $11::bigint OR $11::bigint < 0))
       AND (waiting = 0 OR $13::boolean OR owner = $2)
       FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l
   SET token = CASE WHEN l.owner = $2 THEN l.token ELSE greatest(l.token + $12::bigint, ` + PostgresMicros + `) END,
       owner = $2, expires_at = greatest(CASE WHEN l.owner = $2 THEN l.expires_at END,
                                         ` + PostgresNow + ` + $3::float * interval '1 microsecond'),
       lock_delay_us = $4, acquired_at = ` + PostgresNow + `, host = $5, pid = $6, label = $7, metadata = $8, strategy = $9, ended = '',
       waiting = CASE WHEN l.waiting = $14::bigint THEN 0 ELSE l.waiting END
  FROM free
 WHERE l.name = free.name
RETURNING l.token`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "session", "seen", "tokens", "first", "line"},
		},

		State: databases.Statement{
			Name: "grant.state",
			SQL: `SELECT owner, token, ended, (pg_catalog.date_part('epoch', expires_at - ` + PostgresNow + `) * 1000000::float)::bigint,
       lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name = $1`,
			Args: []string{"name"},
		},

		// greatest: a renewal that was held up on its way never shortens what
		// Extend gave meanwhile.
		Renew: databases.Statement{
			Name: "grant.renew",
			SQL: `UPDATE sqllock_locks
   SET expires_at = greatest(expires_at, ` + PostgresNow + ` + $3::float * interval '1 microsecond')
 WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner", "lease"},
		},

		// FOR NO KEY UPDATE, as a renewal's lock: a guard is not in the way, and does not change.
		Raise: databases.Statement{
			Name: "grant.raise",
			SQL: `WITH held AS (
    SELECT name FROM sqllock_locks WHERE name = $1 AND owner = $2 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l SET token = greatest(l.token, $3::bigint) FROM held WHERE l.name = held.name
RETURNING l.token`,
			Args: []string{"name", "owner", "token"},
		},

		Release: databases.Statement{
			Name: "grant.release",
			SQL: `UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
 WHERE name = $1 AND owner = $2 AND ` + PostgresAsync("$3") + `
RETURNING ` + postgresContended,
			Args: []string{"name", "owner", "durable"},
		},

		ReleaseTx: databases.Statement{
			Name: "grant.release-tx",
			SQL:  `UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0 WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner"},
		},

		ReleaseLater: databases.Statement{
			Name: "grant.release-later",
			SQL: `UPDATE sqllock_locks l
   SET owner = '', expires_at = acquired_at + $3::float * interval '1 microsecond', lock_delay_us = 0
 WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner", "min_hold"},
		},

		Force: []databases.Statement{{
			Name: "grant.force",
			SQL: `UPDATE sqllock_locks l
   SET owner = '', expires_at = 'epoch', lock_delay_us = 0, ended = CASE WHEN owner = '' THEN ended ELSE $3 END
 WHERE name = $1 AND owner = $2 AND token = $4`,
			Args: []string{"name", "owner", "ended", "token"},
		}},

		// FOR KEY SHARE conflicts with the FOR UPDATE of the next acquisition
		// and of the removal of idle rows, and with nothing that a renewal or a
		// release does (https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS).
		Guard: databases.Statement{
			Name: "grant.guard",
			SQL:  `SELECT token FROM sqllock_locks WHERE name = $1 AND owner = $2 AND token = $3 FOR KEY SHARE`,
			Args: []string{"name", "owner", "token"},
		},

		// FOR UPDATE, as an acquisition: FOR KEY SHARE does not mind a weaker change
		// that is newer than the snapshot.
		Date: databases.Statement{
			Name: "grant.date",
			SQL: `WITH held AS (
    SELECT name FROM sqllock_locks WHERE name = $1 AND owner = $2 AND token = $3 FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l SET acquired_at = ` + PostgresNow + ` FROM held WHERE l.name = held.name`,
			Args: []string{"name", "owner", "token"},
		},

		// As the next acquisition would lock it.
		Unguarded: databases.Statement{
			Name: "grant.unguarded",
			SQL:  `SELECT name FROM sqllock_locks WHERE name = $1 FOR UPDATE SKIP LOCKED`,
			Args: []string{"name"},
		},

		Holders: databases.Statement{
			Name: "grant.holders",
			SQL: postgresHolders + `
 WHERE l.expires_at + l.lock_delay_us::float * interval '1 microsecond' > ` + PostgresNow + ` AND pg_catalog.starts_with(l.name, $1)
 ORDER BY l.name, s.acquired_at, s.owner LIMIT $2`,
			Args: []string{"prefix", "limit"},
		},

		Expired: databases.Statement{
			Name: "grant.expired",
			SQL: `SELECT name FROM sqllock_locks
 WHERE owner <> ''
   AND expires_at + lock_delay_us::float * interval '1 microsecond' <= ` + PostgresNow + ` ORDER BY name LIMIT 1000`,
		},

		// The predicate again, on the row as it is when it is locked: one that
		// was renewed meanwhile stays.
		End: databases.Statement{
			Name: "grant.end",
			SQL: `WITH dead AS (
    SELECT name FROM sqllock_locks
     WHERE name = $1 AND owner <> ''
       AND expires_at + lock_delay_us::float * interval '1 microsecond' <= ` + PostgresNow + `
       FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l SET owner = '', lock_delay_us = 0, ended = 'expired' FROM dead WHERE l.name = dead.name`,
			Args: []string{"name"},
		},

		// As Holders.
		Slots: databases.Statement{
			Name: "grant.slots",
			SQL: postgresHolders + `
 WHERE (l.name = $1 OR l.name > $2 AND l.name < $3) AND l.expires_at + l.lock_delay_us::float * interval '1 microsecond' > ` + PostgresNow + `
 ORDER BY l.name, s.acquired_at, s.owner LIMIT $4`,
			Args: []string{"name", "above", "below", "limit"},
		},

		Idle:      postgresRemove("grant.idle", postgresUnnoted),
		Forgotten: postgresRemove("grant.forgotten", postgresForgotten),

		Notes: databases.Statement{
			Name: "notes.read",
			SQL: `SELECT owner, (pg_catalog.date_part('epoch', expires_at - ` + PostgresNow + `) * 1000000::float)::bigint, tick, asked
  FROM sqllock_locks WHERE name = $1`,
			Args: []string{"name"},
		},
		NoteTick: databases.Statement{
			Name: "notes.tick",
			SQL:  `UPDATE sqllock_locks SET tick = greatest(tick, $3::bigint) WHERE name = $1 AND owner = $2`,
			Args: []string{"name", "owner", "tick"},
		},
		Ask: databases.Statement{
			Name: "notes.ask",
			SQL: `UPDATE sqllock_locks SET asked = pg_catalog.concat(owner, ' ', $2::pg_catalog.text)
 WHERE name = $1 AND owner <> '' AND expires_at > ` + PostgresNow,
			Args: []string{"name", "reason"},
		},
		Announce: databases.Statement{
			Name: "notes.announce",
			SQL:  `SELECT pg_catalog.pg_notify('` + allChannel + `', $1)`,
			Args: []string{"name"},
		},

		Shares: Shares{
			Enter: databases.Statement{
				Name: "share.enter",
				SQL: `INSERT INTO sqllock_shares AS s (name, owner, phase, expires_at, acquired_at, host, pid, label, metadata)
VALUES ($1, $2, $3, ` + PostgresNow + ` + $4::float * interval '1 microsecond', ` + PostgresNow + `, $5, $6, $7, $8)
    ON CONFLICT (name, owner) DO UPDATE
   SET phase = excluded.phase, expires_at = CASE WHEN s.phase = excluded.phase THEN greatest(s.expires_at, excluded.expires_at) ELSE excluded.expires_at END`,
				Args: []string{"name", "owner", "phase", "lease", "host", "pid", "label", "metadata"},
			},
			Keep: databases.Statement{
				Name: "share.keep",
				SQL: `UPDATE sqllock_shares SET expires_at = greatest(expires_at, ` + PostgresNow + ` + $4::float * interval '1 microsecond')
 WHERE name = $1 AND owner = $2 AND phase = $3`,
				Args: []string{"name", "owner", "phase", "lease"},
			},
			Leave: databases.Statement{
				Name: "share.leave",
				SQL:  `DELETE FROM sqllock_shares WHERE name = $1 AND owner = $2 AND ` + PostgresAsync("$3"),
				Args: []string{"name", "owner", "durable"},
			},
			Join: databases.Statement{
				Name: "share.join",
				SQL: `WITH read AS (
    SELECT name FROM sqllock_locks
     WHERE name = $1 AND owner = $2 AND expires_at > ` + PostgresNow + ` AND (waiting = 0 OR $4::boolean)
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l
   SET expires_at = greatest(l.expires_at, ` + PostgresNow + ` + $3::float * interval '1 microsecond'), joins = l.joins + 1::bigint,
       waiting = CASE WHEN l.waiting = $5::bigint THEN 0 ELSE l.waiting END
  FROM read WHERE l.name = read.name`,
				Args: []string{"name", "phase", "lease", "first", "line"},
			},
			Prolong: databases.Statement{
				Name: "share.prolong",
				SQL: `UPDATE sqllock_locks
   SET expires_at = greatest(expires_at, ` + PostgresNow + ` + $3::float * interval '1 microsecond'), joins = joins + 1::bigint
 WHERE name = $1 AND owner = $2`,
				Args: []string{"name", "phase", "lease"},
			},
			Phase: databases.Statement{
				Name: "share.phase",
				SQL: `SELECT owner, joins, (pg_catalog.date_part('epoch', expires_at - ` + PostgresNow + `) * 1000000::float)::bigint
  FROM sqllock_locks WHERE name = $1`,
				Args: []string{"name"},
			},
			Longest: databases.Statement{
				Name: "share.longest",
				SQL: `SELECT coalesce((pg_catalog.date_part('epoch', pg_catalog.max(expires_at) - ` + PostgresNow + `) * 1000000::float)::bigint, 0)
  FROM sqllock_shares WHERE name = $1 AND phase = $2`,
				Args: []string{"name", "phase"},
			},
			Reader: databases.Statement{
				Name: "share.reader",
				SQL: `SELECT phase, (pg_catalog.date_part('epoch', expires_at - ` + PostgresNow + `) * 1000000::float)::bigint
  FROM sqllock_shares WHERE name = $1 AND owner = $2`,
				Args: []string{"name", "owner"},
			},
			Readers: databases.Statement{
				Name: "share.readers",
				SQL:  `SELECT owner FROM sqllock_shares WHERE name = $1 AND phase = $2 AND ` + PostgresAtPrimary,
				Args: []string{"name", "phase"},
			},
			Holder: databases.Statement{
				Name: "share.holder",
				SQL: `SELECT host, pid, label, metadata FROM sqllock_shares
 WHERE name = $1 AND phase = $2 AND ` + PostgresAtPrimary + ` ORDER BY expires_at DESC LIMIT 1`,
				Args: []string{"name", "phase"},
			},
			End: databases.Statement{
				Name: "share.end",
				SQL: `UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
 WHERE name = $1 AND owner = $2 AND joins = $3 AND ` + PostgresAsync("$4") + `
RETURNING ` + postgresContended,
				Args: []string{"name", "owner", "joins", "durable"},
			},
			Shorten: databases.Statement{
				Name: "share.shorten",
				SQL: `UPDATE sqllock_locks SET expires_at = least(expires_at, ` + PostgresNow + ` + $4::float * interval '1 microsecond')
 WHERE name = $1 AND owner = $2 AND joins = $3 AND ` + PostgresAsync("false"),
				Args: []string{"name", "owner", "joins", "left"},
			},
			Stale: databases.Statement{
				Name: "share.stale",
				SQL:  `SELECT name, owner FROM sqllock_shares WHERE expires_at < ` + PostgresNow + ` - interval '1 minute' ORDER BY name, owner LIMIT 1000`,
			},
			Clear: databases.Statement{
				Name: "share.clear",
				SQL: `DELETE FROM sqllock_shares
 WHERE name = $1 AND owner = $2 AND expires_at < ` + PostgresNow + ` - interval '1 minute'`,
				Args: []string{"name", "owner"},
			},
		},

		// Whoever releases the name has its row locked: either this comes first, and the
		// release tells, or it finds the name free. The number changes with each wait, so
		// that nobody who has seen the line before forgets this one. Their loss in a crash of
		// the server costs an Enqueue.
		Enqueue: []databases.Statement{{
			Name: "queue.enqueue",
			SQL: `WITH entry AS (
    INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, behind, slots, shared)
    SELECT $1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, ` + PostgresMicros + ` - $10::bigint, ` + PostgresNow + ` + $4::float * interval '1 microsecond',
           $5::pg_catalog.text, $6::bigint, $7::pg_catalog.text, $8::pg_catalog.text, $9::pg_catalog.text, $11::boolean, $12::bigint, $13::boolean
     WHERE ` + PostgresAsync("false") + ` AND ` + PostgresBriefly + `
        ON CONFLICT (process, id) DO UPDATE
       SET expires_at = excluded.expires_at, behind = excluded.behind,
           ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END
    RETURNING name, behind
)
UPDATE sqllock_locks l SET waiting = greatest(l.waiting + 1::bigint, ` + PostgresMicros + `)
  FROM entry WHERE l.name = entry.name AND NOT entry.behind
RETURNING l.expires_at + l.lock_delay_us::float * interval '1 microsecond' > ` + PostgresNow,
			Args: []string{"process", "id", "name", "ttl", "host", "pid", "label", "metadata", "holding", "waited", "behind", "slots", "shared"},
		}},
		// Of the slots beside the first. In order, as others do the same.
		EnqueueSlots: databases.Statement{
			Name: "queue.enqueue-slots",
			SQL: `WITH slots AS MATERIALIZED (
    SELECT name FROM sqllock_locks
     WHERE name > $1 AND name < $2 AND ` + PostgresAsync("false") + ` AND ` + PostgresBriefly + `
     ORDER BY name
       FOR NO KEY UPDATE
)
UPDATE sqllock_locks l SET waiting = greatest(l.waiting + 1::bigint, ` + PostgresMicros + `) FROM slots WHERE l.name = slots.name`,
			Args: []string{"above", "below"},
		},
		// Of several names it waits for no row: as long as it did, it would keep the others' from their grants.
		EnqueueAll: []databases.Statement{{
			Name: "queue.enqueue-all",
			SQL: `WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($3::pg_catalog.text[], $4::pg_catalog.text[], $5::pg_catalog.text[], $6::bigint[], $7::pg_catalog.text[], $8::pg_catalog.text[], $9::pg_catalog.text[], $10::bigint[], $11::boolean[])
               AS a (id, name, host, pid, label, metadata, holding, waited, shared)
), clock AS MATERIALIZED (
    SELECT ` + PostgresMicros + ` AS micros
), entry AS (
    INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, shared)
    SELECT $1::pg_catalog.text, a.id, a.name, clock.micros - a.waited, ` + PostgresNow + ` + $2::float * interval '1 microsecond',
           a.host, a.pid, a.label, a.metadata, a.holding, a.shared
      FROM asked a, clock WHERE ` + PostgresAsync("false") + ` AND ` + PostgresBriefly + `
        ON CONFLICT (process, id) DO UPDATE
       SET expires_at = excluded.expires_at, behind = false,
           ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END
    RETURNING name
), free AS MATERIALIZED (
    SELECT l.name FROM sqllock_locks l WHERE l.name IN (SELECT name FROM entry)
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l SET waiting = greatest(l.waiting + 1::bigint, ` + PostgresMicros + `)
  FROM free WHERE l.name = free.name
RETURNING l.name, l.expires_at + l.lock_delay_us::float * interval '1 microsecond' > ` + PostgresNow,
			Args: []string{"process", "ttl", "ids", "names", "hosts", "pids", "labels", "metadatas", "holdings", "waiteds", "shareds"},
		}},
		Keep: databases.Statement{
			Name: "queue.keep",
			SQL: `UPDATE sqllock_queue SET expires_at = ` + PostgresNow + ` + $2::float * interval '1 microsecond'
 WHERE process = $1 AND ` + PostgresAsync("false"),
			Args: []string{"process", "ttl"},
		},
		Leave: databases.Statement{
			Name: "queue.leave",
			SQL:  `DELETE FROM sqllock_queue WHERE process = $1 AND id = ANY ($2::pg_catalog.text[]) AND ` + PostgresAsync("false"),
			Args: []string{"process", "ids"},
		},
		// Not in one statement with what was done before, whose snapshot may be older than a
		// release.
		Tell: databases.Statement{
			Name: "queue.tell",
			SQL: `SELECT ` + PostgresTell + `
  FROM sqllock_locks l
 WHERE l.name = ANY ($1::pg_catalog.text[])
   AND (l.expires_at <= ` + PostgresNow + ` OR ` + postgresRead + ` AND (
           SELECT q.shared FROM sqllock_queue q
            WHERE q.name = l.name AND NOT q.behind AND q.expires_at > ` + PostgresNow + ` ORDER BY q.ticket, q.id LIMIT 1))`,
			Args: []string{"names"},
		},
		TellAll: databases.Statement{
			Name: "queue.tell-all",
			SQL:  `SELECT pg_catalog.pg_notify('` + allChannel + `', l.name) FROM sqllock_locks l WHERE l.name = $1 AND l.waiting <> 0`,
			Args: []string{"name"},
		},
		Stand: databases.Statement{
			Name: "queue.stand",
			SQL: `SELECT q.name, q.id, pg_catalog.count(o.id) FILTER (WHERE o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id),
       coalesce((pg_catalog.date_part('epoch', pg_catalog.min(o.expires_at) FILTER (WHERE o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id)
                                               - ` + PostgresNow + `) * 1000000::float)::bigint, 0),
       coalesce((pg_catalog.date_part('epoch', l.expires_at - ` + PostgresNow + `) * 1000000::float)::bigint + l.lock_delay_us, 0),
       coalesce(l.waiting, 0), pg_catalog.count(o.id), q.slots,
       q.shared, coalesce(` + postgresRead + `, false)
  FROM sqllock_queue q
  LEFT JOIN sqllock_locks l ON l.name = q.name
  LEFT JOIN sqllock_queue o ON o.name = q.name AND o.id <> q.id AND NOT o.behind AND o.expires_at > ` + PostgresNow + `
 WHERE q.process = $1 AND NOT q.behind
 GROUP BY q.name, q.id, q.ticket, q.slots, q.shared, l.expires_at, l.lock_delay_us, l.waiting, l.owner`,
			Args: []string{"process"},
		},
		Waiters: databases.Statement{
			Name: "queue.waiters",
			SQL: `SELECT q.name, q.process, q.id, q.ticket, ` + PostgresMicros + ` - q.ticket, q.host, q.pid, q.label, q.metadata, q.holding, q.behind,
       CASE WHEN l.expires_at > ` + PostgresNow + ` AND q.slots = 1::bigint THEN l.owner ELSE '' END, q.slots, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_locks l ON l.name = q.name
 WHERE q.expires_at > ` + PostgresNow + ` AND ($1::pg_catalog.text = '' OR q.name = $1::pg_catalog.text)
   AND pg_catalog.starts_with(q.name, $2) AND (NOT $3::boolean OR q.holding <> '')
 ORDER BY q.name, q.behind, q.ticket, q.id LIMIT $4`,
			Args: []string{"name", "prefix", "holds", "limit"},
		},
		Dead: databases.Statement{
			Name: "queue.dead",
			SQL:  `SELECT process, id FROM sqllock_queue WHERE expires_at < ` + PostgresNow + ` - interval '1 minute' LIMIT 1000`,
		},
	},
}
