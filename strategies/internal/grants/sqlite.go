package grants

import (
	"time"

	"github.com/sqllock/sqllock/databases"
)

// SQLiteNow is SQLite's clock. It is read once a statement, after that has the write
// lock, in milliseconds (https://www.sqlite.org/lang_datefunc.html).
const SQLiteNow = `CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000`

// sqliteRead is true of a row that readers have.
const sqliteRead = `substr(l.owner, 1, 7) = '` + sharedPrefix + `'`

// sqliteLeft is true of one whose readers all have left, or died.
const sqliteLeft = sqliteRead + ` AND s.owner IS NULL`

// sqliteHolders lists holders, and each of the readers.
const sqliteHolders = `SELECT l.name, l.strategy, l.token, iif(` + sqliteLeft + `, '', coalesce(s.host, l.host)),
       iif(` + sqliteLeft + `, 0, coalesce(s.pid, l.pid)), iif(` + sqliteLeft + `, '', coalesce(s.label, l.label)),
       iif(` + sqliteLeft + `, '', coalesce(s.metadata, l.metadata)),
       ` + SQLiteNow + ` - coalesce(s.acquired_at, l.acquired_at), coalesce(s.expires_at, l.expires_at) - ` + SQLiteNow + `, l.lock_delay_us,
       iif(` + sqliteLeft + `, '', coalesce(s.owner, l.owner)), ` + sqliteRead + `
  FROM sqllock_locks l
  LEFT JOIN sqllock_shares s ON s.name = l.name AND s.phase = l.owner AND s.expires_at > ` + SQLiteNow

// SQLite is the dialect of SQLite.
var SQLite = Dialect{
	Name:        databases.SQLite,
	Resolution:  time.Millisecond,
	OneWriter:   true,
	WhyReadOnly: "the process needs to write the file and its folder",

	Statements: Statements{
		// As the compare-and-set of package cas.
		Acquire: databases.Statement{
			Name: "grant.acquire",
			SQL: `INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
VALUES (?1, ` + SQLiteFirst + `, ?2, ` + SQLiteNow + ` + ?3, ?4, ` + SQLiteNow + `, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + ?10, excluded.token) END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = '',
       wait = ?13, waiting = CASE WHEN l.waiting = ?12 AND l.waiting < ` + SQLiteNow + ` - 5000000 THEN 0 ELSE l.waiting END
 WHERE l.expires_at + l.lock_delay_us <= ` + SQLiteNow + ` AND (l.waiting = 0 OR ?11) OR l.owner = excluded.owner
RETURNING token`,
			Args: []string{"name", "owner", "lease", "delay", "host", "pid", "label", "metadata", "strategy", "tokens", "first", "line", "wait"},
		},

		State: databases.Statement{
			Name: "grant.state",
			SQL: `SELECT owner, token, ended, expires_at - ` + SQLiteNow + `, lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name = ?1`,
			Args: []string{"name"},
		},

		Renew: databases.Statement{
			Name: "grant.renew",
			SQL:  `UPDATE sqllock_locks SET expires_at = max(expires_at, ` + SQLiteNow + ` + ?3) WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner", "lease"},
		},

		Raise: databases.Statement{
			Name: "grant.raise",
			SQL: `UPDATE sqllock_locks SET token = max(token, ?3) WHERE name = ?1 AND owner = ?2
RETURNING token`,
			Args: []string{"name", "owner", "token"},
		},

		Release: databases.Statement{
			Name: "grant.release",
			SQL: `UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = ?1 AND owner = ?2
RETURNING waiting <> 0`,
			Args: []string{"name", "owner"},
		},

		ReleaseTx: databases.Statement{
			Name: "grant.release-tx",
			SQL:  `UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner"},
		},

		ReleaseLater: databases.Statement{
			Name: "grant.release-later",
			SQL: `UPDATE sqllock_locks SET owner = '', expires_at = acquired_at + ?3, lock_delay_us = 0
 WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner", "min_hold"},
		},

		Force: []databases.Statement{{
			Name: "grant.force",
			SQL: `UPDATE sqllock_locks
   SET owner = '', expires_at = 0, lock_delay_us = 0, ended = CASE WHEN owner = '' THEN ended ELSE ?3 END
 WHERE name = ?1 AND owner = ?2 AND token = ?4`,
			Args: []string{"name", "owner", "ended", "token"},
		}},

		// Writes, so that the transaction has SQLite's one write lock from here
		// on: a read alone would not keep a take-over from committing first.
		Guard: databases.Statement{
			Name: "grant.guard",
			SQL: `UPDATE sqllock_locks SET token = token WHERE name = ?1 AND owner = ?2 AND token = ?3
RETURNING token`,
			Args: []string{"name", "owner", "token"},
		},

		Holders: databases.Statement{
			Name: "grant.holders",
			SQL: sqliteHolders + `
 WHERE l.expires_at + l.lock_delay_us > ` + SQLiteNow + ` AND substr(l.name, 1, length(?1)) = ?1 ORDER BY l.name, s.acquired_at, s.owner LIMIT ?2`,
			Args: []string{"prefix", "limit"},
		},

		Slots: databases.Statement{
			Name: "grant.slots",
			SQL: sqliteHolders + `
 WHERE (l.name = ?1 OR l.name > ?2 AND l.name < ?3) AND l.expires_at + l.lock_delay_us > ` + SQLiteNow + `
 ORDER BY l.name, s.acquired_at, s.owner LIMIT ?4`,
			Args: []string{"name", "above", "below", "limit"},
		},

		Expired: databases.Statement{
			Name: "grant.expired",
			SQL: `SELECT name FROM sqllock_locks
 WHERE owner <> '' AND expires_at + lock_delay_us <= ` + SQLiteNow + ` LIMIT 1000`,
		},

		End: databases.Statement{
			Name: "grant.end",
			SQL: `UPDATE sqllock_locks SET owner = '', lock_delay_us = 0, ended = 'expired'
 WHERE name = ?1 AND owner <> '' AND expires_at + lock_delay_us <= ` + SQLiteNow,
			Args: []string{"name"},
		},

		Idle:      sqliteFind("grant.idle", sqliteUnnoted),
		Forgotten: sqliteFind("grant.forgotten", sqliteForgotten),
		Remove:    sqliteRemove,

		Notes: databases.Statement{
			Name: "notes.read",
			SQL:  `SELECT owner, expires_at - ` + SQLiteNow + `, tick, asked FROM sqllock_locks WHERE name = ?1`,
			Args: []string{"name"},
		},
		NoteTick: databases.Statement{
			Name: "notes.tick",
			SQL:  `UPDATE sqllock_locks SET tick = max(tick, ?3) WHERE name = ?1 AND owner = ?2`,
			Args: []string{"name", "owner", "tick"},
		},
		Ask: databases.Statement{
			Name: "notes.ask",
			SQL: `UPDATE sqllock_locks SET asked = owner || ' ' || ?2
 WHERE name = ?1 AND owner <> '' AND expires_at > ` + SQLiteNow,
			Args: []string{"name", "reason"},
		},

		Shares: Shares{
			Enter: databases.Statement{
				Name: "share.enter",
				SQL: `INSERT INTO sqllock_shares AS s (name, owner, phase, expires_at, acquired_at, host, pid, label, metadata)
VALUES (?1, ?2, ?3, ` + SQLiteNow + ` + ?4, ` + SQLiteNow + `, ?5, ?6, ?7, ?8)
    ON CONFLICT (name, owner) DO UPDATE
   SET expires_at = CASE WHEN s.phase = excluded.phase THEN max(s.expires_at, excluded.expires_at) ELSE excluded.expires_at END, phase = excluded.phase`,
				Args: []string{"name", "owner", "phase", "lease", "host", "pid", "label", "metadata"},
			},
			Keep: databases.Statement{
				Name: "share.keep",
				SQL: `UPDATE sqllock_shares SET expires_at = max(expires_at, ` + SQLiteNow + ` + ?4)
 WHERE name = ?1 AND owner = ?2 AND phase = ?3`,
				Args: []string{"name", "owner", "phase", "lease"},
			},
			Leave: databases.Statement{
				Name: "share.leave",
				SQL:  `DELETE FROM sqllock_shares WHERE name = ?1 AND owner = ?2`,
				Args: []string{"name", "owner"},
			},
			Join: databases.Statement{
				Name: "share.join",
				SQL: `UPDATE sqllock_locks
   SET expires_at = max(expires_at, ` + SQLiteNow + ` + ?3), joins = joins + 1,
       waiting = CASE WHEN waiting = ?5 AND waiting < ` + SQLiteNow + ` - 5000000 THEN 0 ELSE waiting END
 WHERE name = ?1 AND owner = ?2 AND expires_at > ` + SQLiteNow + ` AND (waiting = 0 OR ?4)`,
				Args: []string{"name", "phase", "lease", "first", "line"},
			},
			Prolong: databases.Statement{
				Name: "share.prolong",
				SQL: `UPDATE sqllock_locks SET expires_at = max(expires_at, ` + SQLiteNow + ` + ?3), joins = joins + 1
 WHERE name = ?1 AND owner = ?2`,
				Args: []string{"name", "phase", "lease"},
			},
			Phase: databases.Statement{
				Name: "share.phase",
				SQL:  `SELECT owner, joins, expires_at - ` + SQLiteNow + ` FROM sqllock_locks WHERE name = ?1`,
				Args: []string{"name"},
			},
			Longest: databases.Statement{
				Name: "share.longest",
				SQL:  `SELECT coalesce(max(expires_at) - ` + SQLiteNow + `, 0) FROM sqllock_shares WHERE name = ?1 AND phase = ?2`,
				Args: []string{"name", "phase"},
			},
			Reader: databases.Statement{
				Name: "share.reader",
				SQL:  `SELECT phase, expires_at - ` + SQLiteNow + ` FROM sqllock_shares WHERE name = ?1 AND owner = ?2`,
				Args: []string{"name", "owner"},
			},
			Readers: databases.Statement{
				Name: "share.readers",
				SQL:  `SELECT owner FROM sqllock_shares WHERE name = ?1 AND phase = ?2`,
				Args: []string{"name", "phase"},
			},
			Holder: databases.Statement{
				Name: "share.holder",
				SQL:  `SELECT host, pid, label, metadata FROM sqllock_shares WHERE name = ?1 AND phase = ?2 ORDER BY expires_at DESC LIMIT 1`,
				Args: []string{"name", "phase"},
			},
			End: databases.Statement{
				Name: "share.end",
				SQL: `UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = ?1 AND owner = ?2 AND joins = ?3
RETURNING waiting <> 0`,
				Args: []string{"name", "owner", "joins"},
			},
			Shorten: databases.Statement{
				Name: "share.shorten",
				SQL:  `UPDATE sqllock_locks SET expires_at = min(expires_at, ` + SQLiteNow + ` + ?4) WHERE name = ?1 AND owner = ?2 AND joins = ?3`,
				Args: []string{"name", "owner", "joins", "left"},
			},
			Stale: databases.Statement{
				Name: "share.stale",
				SQL:  `SELECT name, owner FROM sqllock_shares WHERE expires_at < ` + SQLiteNow + ` - 60000000 LIMIT 1000`,
			},
			Clear: databases.Statement{
				Name: "share.clear",
				SQL:  `DELETE FROM sqllock_shares WHERE name = ?1 AND owner = ?2 AND expires_at < ` + SQLiteNow + ` - 60000000`,
				Args: []string{"name", "owner"},
			},
		},

		// The clock is coarse: whoever comes later is behind all the same.
		Enqueue: []databases.Statement{
			{
				Name: "queue.enqueue",
				SQL: `INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, behind, slots, shared)
VALUES (?1, ?2, ?3, max(` + SQLiteNow + ` - ?10, coalesce((SELECT max(ticket) + 1 FROM sqllock_queue WHERE name = ?3), 0)), ` + SQLiteNow + ` + ?4,
        ?5, ?6, ?7, ?8, ?9, ?11, ?12, ?13)
    ON CONFLICT (process, id) DO UPDATE
   SET expires_at = excluded.expires_at, behind = excluded.behind,
       ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END`,
				Args: []string{"process", "id", "name", "ttl", "host", "pid", "label", "metadata", "holding", "waited", "behind", "slots", "shared"},
			},
			{
				Name: "queue.wait",
				SQL: `UPDATE sqllock_locks SET waiting = ` + SQLiteNow + ` WHERE name = ?1 AND waiting < ` + SQLiteNow + ` - 2000000
RETURNING expires_at + lock_delay_us > ` + SQLiteNow,
				Args: []string{"name"},
			},
		},
		EnqueueSlots: databases.Statement{
			Name: "queue.enqueue-slots",
			SQL:  `UPDATE sqllock_locks SET waiting = ` + SQLiteNow + ` WHERE name > ?1 AND name < ?2 AND waiting < ` + SQLiteNow + ` - 2000000`,
			Args: []string{"above", "below"},
		},
		EnqueueAll: []databases.Statement{
			{
				Name: "queue.enqueue-all",
				SQL: `INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, shared)
SELECT ?1, a.value ->> 'id', a.value ->> 'name',
       max(` + SQLiteNow + ` - (a.value ->> 'waited'),
           coalesce((SELECT max(q.ticket) + 1 FROM sqllock_queue q WHERE q.name = a.value ->> 'name'), 0)), ` + SQLiteNow + ` + ?2,
       a.value ->> 'host', a.value ->> 'pid', a.value ->> 'label', a.value ->> 'metadata', a.value ->> 'holding', a.value ->> 'shared'
  FROM json_each(?3) a WHERE true
    ON CONFLICT (process, id) DO UPDATE
   SET expires_at = excluded.expires_at, behind = false,
       ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END`,
				Args: []string{"process", "ttl", "waiters"},
			},
			{
				Name: "queue.wait-all",
				SQL: `UPDATE sqllock_locks SET waiting = ` + SQLiteNow + `
 WHERE name IN (SELECT value ->> 'name' FROM json_each(?1)) AND waiting < ` + SQLiteNow + ` - 2000000`,
				Args: []string{"waiters"},
			},
			{
				Name: "queue.taken-all",
				SQL: `SELECT name, expires_at + lock_delay_us > ` + SQLiteNow + `
  FROM sqllock_locks WHERE name IN (SELECT value ->> 'name' FROM json_each(?1)) AND waiting > ` + SQLiteNow + ` - 3000000`,
				Args: []string{"waiters"},
			},
		},
		Keep: databases.Statement{
			Name: "queue.keep",
			SQL:  `UPDATE sqllock_queue SET expires_at = ` + SQLiteNow + ` + ?2 WHERE process = ?1`,
			Args: []string{"process", "ttl"},
		},
		Leave: databases.Statement{
			Name: "queue.leave",
			SQL:  `DELETE FROM sqllock_queue WHERE process = ?1 AND id IN (SELECT value ->> 'id' FROM json_each(?2))`,
			Args: []string{"process", "waiters"},
		},
		Stand: databases.Statement{
			Name: "queue.stand",
			SQL: `SELECT q.name, q.id, count(o.id) FILTER (WHERE o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id),
       coalesce(min(o.expires_at) FILTER (WHERE o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id) - ` + SQLiteNow + `, 0),
       coalesce(l.expires_at + l.lock_delay_us - ` + SQLiteNow + `, 0), coalesce(l.waiting, 0),
       count(o.id) + coalesce(l.waiting > ` + SQLiteNow + ` - 2000000, 0), q.slots,
       q.shared, coalesce(` + sqliteRead + `, 0)
  FROM sqllock_queue q
  LEFT JOIN sqllock_locks l ON l.name = q.name
  LEFT JOIN sqllock_queue o ON o.name = q.name AND o.id <> q.id AND o.id <> coalesce(l.wait, '') AND NOT o.behind AND o.expires_at > ` + SQLiteNow + `
 WHERE q.process = ?1 AND NOT q.behind
 GROUP BY q.name, q.id, q.ticket, q.slots, q.shared, l.expires_at, l.lock_delay_us, l.waiting, l.owner`,
			Args: []string{"process"},
		},
		// Any text is less than an empty blob.
		Waiters: databases.Statement{
			Name: "queue.waiters",
			SQL: `SELECT q.name, q.process, q.id, q.ticket, ` + SQLiteNow + ` - q.ticket, q.host, q.pid, q.label, q.metadata, q.holding, q.behind,
       CASE WHEN l.expires_at > ` + SQLiteNow + ` AND q.slots = 1 THEN l.owner ELSE '' END, q.slots, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_locks l ON l.name = q.name
 WHERE q.expires_at > ` + SQLiteNow + ` AND q.id <> coalesce(l.wait, '') AND q.name >= ?1 AND q.name <= iif(?1 = '', x'', ?1) AND substr(q.name, 1, length(?2)) = ?2 AND (NOT ?3 OR q.holding <> '')
 ORDER BY q.name, q.behind, q.ticket, q.id LIMIT ?4`,
			Args: []string{"name", "prefix", "holds", "limit"},
		},
		Dead: databases.Statement{
			Name: "queue.dead",
			SQL:  `SELECT process, id FROM sqllock_queue WHERE expires_at < ` + SQLiteNow + ` - 60000000 LIMIT 1000`,
		},
	},
}
