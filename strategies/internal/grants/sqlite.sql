-- What is sent to SQLite. sql.go says how this file is read.

-- The clock is read once a statement, after that has the write lock, in milliseconds
-- (https://www.sqlite.org/lang_datefunc.html).
-- let now = CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000

-- The largest token of any row that was removed. With one writer the acquisition sees what each removal before it has noted.
-- let floor = coalesce((SELECT f.token FROM sqllock_floor f), 0)

-- True of a row that readers have, and of one whose readers all have left, or died.
-- let read = substr(l.owner, 1, 7) = 'shared-'
-- let left = {read} AND s.owner IS NULL


-- Acquire

-- name: cas.acquire
-- name: cas.acquire from line
-- name: grant.acquire
-- name: grant.acquire from line
-- One writer at a time: nothing to skip, and the row is made on the way.
INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
VALUES (:name, max({now}, {floor} + :tokens), :owner, {now} + :lease, :delay, {now}, :host, :pid, :label, :metadata, :strategy)
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE max(l.token + :tokens, excluded.token) END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = '',
       wait = :wait, waiting = CASE WHEN l.waiting = :line AND l.waiting < {now} - 5000000 THEN 0 ELSE l.waiting END
 WHERE l.expires_at + l.lock_delay_us <= {now} AND (l.waiting = 0 OR :first) OR l.owner = excluded.owner
RETURNING token

-- name: grant.protocol
SELECT p.protocol FROM sqllock_protocol p

-- name: grant.state
SELECT owner, token, ended, expires_at - {now}, lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name = :name


-- Renew and release

-- name: grant.renew
UPDATE sqllock_locks SET expires_at = max(expires_at, {now} + :lease) WHERE name = :name AND owner = :owner

-- name: grant.raise
UPDATE sqllock_locks SET token = max(token, :token) WHERE name = :name AND owner = :owner
RETURNING token

-- name: grant.pass
-- Who has it already is answered as at first.
UPDATE sqllock_locks
   SET expires_at = max(iif(owner = :owner, expires_at, 0), {now} + :lease), acquired_at = max(acquired_at + 1, {now}),
       owner = :owner, lock_delay_us = :delay, host = :host, pid = :pid, label = :label, metadata = :metadata, strategy = :strategy
 WHERE name = :name AND token = :token AND owner IN (:from, :owner) AND expires_at > {now}
RETURNING token

-- name: insert.pass
UPDATE sqllock_inserts SET owner = :owner WHERE name = :name AND owner = :from

-- name: grant.release
-- name: grant.release telling
UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = :name AND owner = :owner
RETURNING waiting <> 0

-- name: grant.release-tx
UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = :name AND owner = :owner

-- name: grant.release-later
UPDATE sqllock_locks SET owner = '', expires_at = acquired_at + :min_hold, lock_delay_us = 0
 WHERE name = :name AND owner = :owner

-- name: grant.force
UPDATE sqllock_locks
   SET owner = '', expires_at = 0, lock_delay_us = 0, ended = CASE WHEN owner = '' THEN ended ELSE :ended END
 WHERE name = :name AND owner = :owner AND token = :token

-- name: insert.gone
-- A row of insert is told by its owner, whom no later row of the name has.
DELETE FROM sqllock_inserts WHERE name = :name AND owner = :owner


-- Guard

-- name: grant.guard
-- Writes, so that the transaction has SQLite's one write lock from here on: a read alone would not keep a take-over from
-- committing first.
UPDATE sqllock_locks SET token = token WHERE name = :name AND owner = :owner AND token = :token
RETURNING token


-- Look

-- Holders, and each of the readers.
-- let holders = SELECT l.name, l.strategy, l.token, iif({left}, '', coalesce(s.host, l.host)),
--        iif({left}, 0, coalesce(s.pid, l.pid)), iif({left}, '', coalesce(s.label, l.label)),
--        iif({left}, '', coalesce(s.metadata, l.metadata)),
--        {now} - coalesce(s.acquired_at, l.acquired_at), coalesce(s.expires_at, l.expires_at) - {now}, l.lock_delay_us,
--        iif({left}, '', coalesce(s.owner, l.owner)), {read}
--   FROM sqllock_locks l
--   LEFT JOIN sqllock_shares s ON s.name = l.name AND s.phase = l.owner AND s.expires_at > {now}

-- name: grant.holders
{holders}
 WHERE l.expires_at + l.lock_delay_us > {now} AND substr(l.name, 1, length(:prefix)) = :prefix ORDER BY l.name, s.acquired_at, s.owner LIMIT :limit

-- name: grant.slots
{holders}
 WHERE (l.name = :name OR l.name > :above AND l.name < :below) AND l.expires_at + l.lock_delay_us > {now}
 ORDER BY l.name, s.acquired_at, s.owner LIMIT :limit


-- Reap

-- name: grant.expired
SELECT name, owner FROM sqllock_locks
 WHERE owner <> '' AND expires_at + lock_delay_us <= {now} LIMIT 1000

-- name: grant.end
UPDATE sqllock_locks SET owner = '', lock_delay_us = 0, ended = 'expired'
 WHERE name = :name AND owner <> '' AND expires_at + lock_delay_us <= {now}

-- Rows that are not in use, for an age: those of which nothing is noted, or those whose tick was 366 days ago. A job that is
-- later than that would be done again.
-- let idle = l.owner = '' AND l.expires_at + l.lock_delay_us <= {now} AND l.acquired_at < {now} - :age
--    AND l.waiting <= {now} - :age AND l.tick = 0 AND l.ended = ''
-- let forgotten = l.owner = '' AND l.expires_at + l.lock_delay_us <= {now} AND l.acquired_at < {now} - :age
--    AND l.waiting <= {now} - :age AND l.tick < {now} - 31622400000000
-- let unused = NOT EXISTS (SELECT 1 FROM sqllock_queue q
--                     WHERE q.name = iif(instr(l.name, char(31)) = 0, l.name, substr(l.name, 1, instr(l.name, char(31)) - 1))
--                       AND q.expires_at > {now})
--    AND NOT EXISTS (SELECT 1 FROM sqllock_shares s WHERE s.name = l.name)

-- name: grant.idle
-- Before the transaction, which keeps all others from writing.
SELECT l.name FROM sqllock_locks l
 WHERE {idle}
   AND {unused}
 LIMIT :limit

-- name: grant.forgotten
SELECT l.name FROM sqllock_locks l
 WHERE {forgotten}
   AND {unused}
 LIMIT :limit

-- name: grant.remove-begin
BEGIN IMMEDIATE

-- name: grant.lock-idle
SELECT l.name, l.token FROM sqllock_locks l WHERE l.name IN (:names...) AND {idle}

-- name: grant.lock-forgotten
SELECT l.name, l.token FROM sqllock_locks l WHERE l.name IN (:names...) AND {forgotten}

-- name: grant.floor
INSERT INTO sqllock_floor (id, token) VALUES (1, :token) ON CONFLICT (id) DO UPDATE SET token = max(token, excluded.token)

-- name: grant.remove
DELETE FROM sqllock_locks WHERE name IN (:names...)

-- name: grant.remove-leftover inserts
DELETE FROM sqllock_inserts WHERE name IN (:names...)

-- name: group.commit
COMMIT

-- name: group.rollback
ROLLBACK

-- name: insert.stale
-- Rows whose owner no longer has the name: their holders crashed, or another strategy took the name over.
SELECT i.name, i.owner FROM sqllock_inserts i
 WHERE NOT EXISTS (SELECT 1 FROM sqllock_locks l WHERE l.name = i.name AND l.owner = i.owner) LIMIT 1000

-- name: insert.clear-stale
DELETE FROM sqllock_inserts WHERE name = :name AND owner = :owner


-- Notes

-- name: notes.read
SELECT owner, expires_at - {now}, tick, asked FROM sqllock_locks WHERE name = :name

-- name: notes.mark
UPDATE sqllock_locks SET tick = max(tick, :mark) WHERE name = :name AND owner = :owner

-- name: notes.ask
UPDATE sqllock_locks SET asked = owner || ' ' || :reason
 WHERE name = :name AND owner <> '' AND expires_at > {now}


-- Readers

-- name: share.enter
INSERT INTO sqllock_shares AS s (name, owner, phase, expires_at, acquired_at, host, pid, label, metadata)
VALUES (:name, :owner, :phase, {now} + :lease, {now}, :host, :pid, :label, :metadata)
    ON CONFLICT (name, owner) DO UPDATE
   SET expires_at = CASE WHEN s.phase = excluded.phase THEN max(s.expires_at, excluded.expires_at) ELSE excluded.expires_at END, phase = excluded.phase

-- name: share.keep
UPDATE sqllock_shares SET expires_at = max(expires_at, {now} + :lease)
 WHERE name = :name AND owner = :owner AND phase = :phase

-- name: share.leave
DELETE FROM sqllock_shares WHERE name = :name AND owner = :owner

-- name: share.join
UPDATE sqllock_locks
   SET expires_at = max(expires_at, {now} + :lease), joins = joins + 1,
       waiting = CASE WHEN waiting = :line AND waiting < {now} - 5000000 THEN 0 ELSE waiting END
 WHERE name = :name AND owner = :phase AND expires_at > {now} AND (waiting = 0 OR :first)

-- name: share.prolong
UPDATE sqllock_locks SET expires_at = max(expires_at, {now} + :lease), joins = joins + 1
 WHERE name = :name AND owner = :phase

-- name: share.phase
SELECT owner, joins, expires_at - {now} FROM sqllock_locks WHERE name = :name

-- name: share.longest
SELECT coalesce(max(expires_at) - {now}, 0) FROM sqllock_shares WHERE name = :name AND phase = :phase

-- name: share.reader
SELECT phase, expires_at - {now} FROM sqllock_shares WHERE name = :name AND owner = :owner

-- name: share.readers
SELECT owner FROM sqllock_shares WHERE name = :name AND phase = :phase

-- name: share.holder
SELECT host, pid, label, metadata FROM sqllock_shares WHERE name = :name AND phase = :phase ORDER BY expires_at DESC LIMIT 1

-- name: share.end
UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0 WHERE name = :name AND owner = :owner AND joins = :joins
RETURNING waiting <> 0

-- name: share.shorten
UPDATE sqllock_locks SET expires_at = min(expires_at, {now} + :left) WHERE name = :name AND owner = :owner AND joins = :joins

-- name: share.stale
SELECT name, owner FROM sqllock_shares WHERE expires_at < {now} - 60000000 LIMIT 1000

-- name: share.clear
DELETE FROM sqllock_shares WHERE name = :name AND owner = :owner AND expires_at < {now} - 60000000


-- The line

-- name: queue.enqueue
-- The clock is coarse: whoever comes later is behind all the same.
INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, behind, slots, shared)
VALUES (:process, :id, :name, max({now} - :waited, coalesce((SELECT max(ticket) + 1 FROM sqllock_queue WHERE name = :name), 0)), {now} + :ttl,
        :host, :pid, :label, :metadata, :holding, :behind, :slots, :shared)
    ON CONFLICT (process, id) DO UPDATE
   SET expires_at = excluded.expires_at, behind = excluded.behind,
       ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END

-- name: queue.wait
UPDATE sqllock_locks SET waiting = {now} WHERE name = :name AND waiting < {now} - 2000000
RETURNING name, expires_at + lock_delay_us > {now}

-- name: queue.enqueue-slots
UPDATE sqllock_locks SET waiting = {now} WHERE name > :above AND name < :below AND waiting < {now} - 2000000

-- name: queue.enqueue-all
INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, shared)
SELECT :process, a.value ->> 'id', a.value ->> 'name',
       max({now} - coalesce(a.value ->> 'waited', :waited),
           coalesce((SELECT max(q.ticket) + 1 FROM sqllock_queue q WHERE q.name = a.value ->> 'name'), 0)), {now} + :ttl,
       coalesce(a.value ->> 'host', :host), coalesce(a.value ->> 'pid', :pid), coalesce(a.value ->> 'label', :label),
       coalesce(a.value ->> 'metadata', :metadata), coalesce(a.value ->> 'holding', :holding), coalesce(a.value ->> 'shared', :shared)
  FROM json_each(:calls) a WHERE true
    ON CONFLICT (process, id) DO UPDATE
   SET expires_at = excluded.expires_at, behind = false,
       ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END

-- name: queue.wait-all
UPDATE sqllock_locks SET waiting = {now}
 WHERE name IN (SELECT value ->> 'name' FROM json_each(:calls)) AND waiting < {now} - 2000000

-- name: queue.taken-all
SELECT name, expires_at + lock_delay_us > {now}
  FROM sqllock_locks WHERE name IN (SELECT value ->> 'name' FROM json_each(:calls)) AND waiting > {now} - 3000000

-- name: queue.keep
UPDATE sqllock_queue SET expires_at = {now} + :ttl WHERE process = :process

-- name: queue.leave
DELETE FROM sqllock_queue WHERE process = :process AND id IN (SELECT value ->> 'id' FROM json_each(:calls))

-- let ahead = o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id

-- name: queue.stand
-- Nobody is ahead of a reader who has readers only before it, nor in its way while readers have the name.
SELECT q.name, q.id, iif(q.shared AND count(o.id) FILTER (WHERE ({ahead}) AND NOT o.shared) = 0, 0, count(o.id) FILTER (WHERE {ahead})),
       coalesce(min(o.expires_at) FILTER (WHERE {ahead}) - {now}, 0),
       iif(q.shared AND {read}, 0, coalesce(l.expires_at + l.lock_delay_us - {now}, 0)), coalesce(l.waiting, 0),
       count(o.id) + coalesce(l.waiting > {now} - 2000000, 0), q.slots
  FROM sqllock_queue q
  LEFT JOIN sqllock_locks l ON l.name = q.name
  LEFT JOIN sqllock_queue o ON o.name = q.name AND o.id <> q.id AND o.id <> coalesce(l.wait, '') AND NOT o.behind AND o.expires_at > {now}
 WHERE q.process = :process AND NOT q.behind
 GROUP BY q.name, q.id, q.ticket, q.slots, q.shared, l.expires_at, l.lock_delay_us, l.waiting, l.owner

-- name: queue.waiters
-- Any text is less than an empty blob.
SELECT q.name, q.process, q.id, q.ticket, {now} - q.ticket, q.host, q.pid, q.label, q.metadata, q.holding, q.behind,
       CASE WHEN l.expires_at > {now} AND q.slots = 1 THEN l.owner ELSE '' END, q.slots, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_locks l ON l.name = q.name
 WHERE q.expires_at > {now} AND q.id <> coalesce(l.wait, '') AND q.name >= :name AND q.name <= iif(:name = '', x'', :name) AND substr(q.name, 1, length(:prefix)) = :prefix AND (NOT :holds OR q.holding <> '')
 ORDER BY q.name, q.behind, q.ticket, q.id LIMIT :limit

-- name: queue.dead
SELECT process, id FROM sqllock_queue WHERE expires_at < {now} - 60000000 LIMIT 1000


-- Many grants at a time

-- The JSON array of calls is read once: read anew for each row, that of 500 took a hundred times as long as the rest.
-- let asked = asked AS MATERIALIZED (
--     SELECT value ->> 'name' AS name, value ->> 'owner' AS owner, value ->> 'lease' AS lease, value ->> 'delay' AS delay, value ->> 'host' AS host,
--            value ->> 'pid' AS pid, value ->> 'label' AS label, value ->> 'metadata' AS metadata, value ->> 'tokens' AS tokens,
--            value ->> 'first' AS first, value ->> 'line' AS line, value ->> 'wait' AS wait
--       FROM json_each(:calls)
-- )

-- name: grant.create-all
INSERT INTO sqllock_locks (name, acquired_at) SELECT value ->> 'name', {now} FROM json_each(:calls) WHERE true
    ON CONFLICT DO NOTHING

-- name: grant.acquire-all
WITH {asked}
INSERT INTO sqllock_locks AS l
       (name, token, owner, expires_at, lock_delay_us, acquired_at, host, pid, label, metadata, strategy)
SELECT a.name, max({now}, max(coalesce((SELECT b.token FROM sqllock_locks b WHERE b.name = a.name), 0), {floor}) + coalesce(a.tokens, :tokens)),
       a.owner, {now} + coalesce(a.lease, :lease), coalesce(a.delay, :delay), {now}, coalesce(a.host, :host), coalesce(a.pid, :pid),
       coalesce(a.label, :label), coalesce(a.metadata, :metadata), :strategy
  FROM asked a WHERE true
    ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN l.owner = excluded.owner THEN l.token ELSE excluded.token END,
       owner = excluded.owner, expires_at = max(l.expires_at, excluded.expires_at),
       lock_delay_us = excluded.lock_delay_us, acquired_at = excluded.acquired_at, host = excluded.host,
       pid = excluded.pid, label = excluded.label, metadata = excluded.metadata, strategy = excluded.strategy, ended = '',
       wait = (SELECT coalesce(a.wait, :wait) FROM asked a WHERE a.owner = excluded.owner),
       waiting = CASE WHEN l.waiting = (SELECT coalesce(a.line, :line) FROM asked a WHERE a.owner = excluded.owner)
                           AND l.waiting < {now} - 5000000 THEN 0 ELSE l.waiting END
 WHERE l.expires_at + l.lock_delay_us <= {now}
       AND (l.waiting = 0 OR (SELECT coalesce(a.first, :first) FROM asked a WHERE a.owner = excluded.owner))
    OR l.owner = excluded.owner
RETURNING owner, token

-- name: grant.state-all
SELECT name, owner, token, ended, expires_at - {now}, lock_delay_us, host, pid, label, metadata, waiting
  FROM sqllock_locks WHERE name IN (SELECT value ->> 'name' FROM json_each(:calls))

-- name: grant.renew-all
UPDATE sqllock_locks SET expires_at = max(expires_at, {now} + :lease)
 WHERE (name, owner) IN (SELECT value ->> 'name', value ->> 'owner' FROM json_each(:calls))
RETURNING owner, false

-- name: grant.release-all
-- name: grant.release-all quietly
-- RETURNING sees the row as it is afterwards, so the owner is told from what was asked.
WITH {asked}
UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0
 WHERE (name, owner) IN (SELECT a.name, a.owner FROM asked a)
RETURNING (SELECT a.owner FROM asked a WHERE a.name = sqllock_locks.name), waiting <> 0


-- Strategy insert, in one transaction with the record

-- name: insert.begin
BEGIN IMMEDIATE

-- name: insert.insert
INSERT INTO sqllock_inserts (name, owner) VALUES (:name, :owner)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner

-- name: insert.insert-all
WITH {asked}
INSERT INTO sqllock_inserts (name, owner)
SELECT l.name, l.owner FROM asked a JOIN sqllock_locks l ON l.name = a.name AND l.owner = a.owner WHERE true
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner

-- name: insert.gone-all
DELETE FROM sqllock_inserts WHERE (name, owner) IN (SELECT value ->> 'name', value ->> 'owner' FROM json_each(:calls))

-- name: insert.commit
COMMIT

-- name: insert.rollback
ROLLBACK


-- What SQLite does without

-- An acquisition makes the row. A lease is in it.
-- none: grant.create, grant.create-lease, grant.ready, grant.create-all-leases, grant.ready-all, grant.force-lease, grant.leases-all

-- There is one writer: its lock guards, does not say of which row, and is waited for by the driver.
-- none: grant.unguarded, grant.guard-snapshot, grant.guard-write, grant.many-primaries, grant.brief, grant.patient

-- A transaction cannot write after a snapshot that anything was committed since.
-- none: grant.date

-- grant.remove-begin has the write lock, so that nothing is to be locked.
-- none: grant.remove-isolate, group.begin, grant.remove-leases
-- none: grant.remove-leftover mutexes

-- insert takes the record as all do, and deletes its row before.
-- none: insert.acquire, insert.acquire from line, grant.release insert, grant.release telling insert, grant.release-later insert, grant.release-tx insert, share.end insert, insert.acquire-all, insert.release-all, insert.release-all quietly
-- none: insert.look, insert.look-all, insert.clear

-- Who waits sees commits.
-- none: notes.announce, queue.tell, queue.tell-all, queue.first, queue.call, queue.enqueue-each, queue.wait-each, queue.taken-each, queue.stand keeping

-- A connection is of one file.
-- none: grant.where

-- It has neither row locks nor advisory locks.
-- none: forupdate, grant.acquire held, grant.acquire held from line, advisory

-- A file has no other server that could lack a commit.
-- none: recovery
