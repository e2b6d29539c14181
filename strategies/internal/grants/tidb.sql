-- What is sent to TiDB. sql.go says how this file is read.
--
-- SKIP LOCKED is taken there and ignored, and refused in a derived table, so that rows are locked first, by a query with
-- NOWAIT, and then changed: package databases/tidb sends the steps of such statements one after the other in one
-- transaction, until a query finds nothing. There is no JSON_TABLE, so that no statement is about several names.
--
-- The token comes from that query, and never from LAST_INSERT_ID(expr): a statement that the server has executed once more
-- by itself, because of others who changed the row, may tell what it computed the first time.

-- The millisecond of the timestamp that the transaction began with, which all servers of a cluster are given by one clock,
-- that of its placement driver (https://docs.pingcap.com/tidb/stable/tso/). UTC_TIMESTAMP is each server's own. It is taken
-- before the row is locked, so that a lease ends no earlier than another transaction believes; and after the client sent
-- its request, so that the lease is no shorter than the client believes.
--
-- Outside a transaction it is NULL, by which nothing is free. The function TIDB_CURRENT_TSO() tells the same, but a plan
-- that was kept for a prepared statement has it as a constant; a statement with a variable is planned anew each time.
-- let now = (CAST(NULLIF(@@tidb_current_ts, 0) AS SIGNED) DIV 262144 * 1000)

-- How the owner of a phase begins, "shared-", in whatever character set the connection has.
-- let shared = 0x7368617265642D


-- Acquire

-- name: cas.acquire
-- name: cas.acquire from line
-- name: grant.acquire
-- name: grant.acquire from line
-- The token is the same in each statement of a transaction that has the rows locked, as the clock is.
SELECT IF(e.owner = UNHEX(:owner), l.token, GREATEST(l.token + :tokens, {now}))
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(:name) AND l.token <> 0 AND (e.expires_at + l.lock_delay_us <= {now} OR e.owner = UNHEX(:owner))
   AND (e.waiting = 0 OR :first OR e.owner = UNHEX(:owner))
   FOR UPDATE NOWAIT
-- then
UPDATE sqllock_leases was JOIN sqllock_locks l ON l.name = was.name JOIN sqllock_leases e ON e.name = was.name
   SET l.token = IF(was.owner = UNHEX(:owner), l.token, GREATEST(l.token + :tokens, {now})), l.owner = UNHEX(:owner), l.lock_delay_us = :delay,
       l.acquired_at = {now}, l.host = UNHEX(:host), l.pid = :pid, l.label = UNHEX(:label), l.metadata = UNHEX(:metadata), l.strategy = UNHEX(:strategy),
       e.ended = '', e.owner = UNHEX(:owner), e.wait = UNHEX(:wait),
       e.waiting = IF(was.waiting = :line AND was.waiting < {now} - 5000000, 0, was.waiting),
       e.expires_at = GREATEST(IF(was.owner = UNHEX(:owner), was.expires_at, 0), {now} + :lease)
 WHERE was.name = UNHEX(:name)

-- name: grant.create
INSERT INTO sqllock_locks (name, acquired_at) VALUES (UNHEX(:name), {now}) ON DUPLICATE KEY UPDATE name = sqllock_locks.name

-- name: grant.create-lease
INSERT INTO sqllock_leases (name) VALUES (UNHEX(:name)) ON DUPLICATE KEY UPDATE name = sqllock_leases.name

-- name: grant.ready
-- The floor is read when the row is locked, as the table that is joined to it.
UPDATE sqllock_locks l LEFT JOIN sqllock_floor f ON true SET l.token = GREATEST(1, COALESCE(f.token, 0))
 WHERE l.name = UNHEX(:name) AND l.token = 0

-- name: grant.protocol
SELECT p.protocol FROM sqllock_protocol p

-- name: grant.state
SELECT e.owner, l.token, e.ended, e.expires_at - {now}, l.lock_delay_us, l.host, l.pid, l.label, l.metadata, e.waiting
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name WHERE l.name = UNHEX(:name)


-- Renew and release

-- name: grant.renew
-- The lease's own row only: a guard has the other.
UPDATE sqllock_leases SET expires_at = GREATEST(expires_at, {now} + :lease) WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: grant.raise
-- The owner of the lease decides, as in a renewal: that in the other row is of the last acquisition, and stays when it is
-- released.
SELECT GREATEST(l.token, :token) FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(:name) AND e.owner = UNHEX(:owner) FOR UPDATE NOWAIT
-- then
UPDATE sqllock_locks SET token = GREATEST(token, :token) WHERE name = UNHEX(:name)

-- name: grant.pass
-- Both rows are locked as by an acquisition. Who has it already is answered as at first.
SELECT l.token FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(:name) AND l.token = :token AND (e.owner = UNHEX(:from) OR e.owner = UNHEX(:owner)) AND e.expires_at > {now}
   FOR UPDATE NOWAIT
-- then
UPDATE sqllock_leases was JOIN sqllock_locks l ON l.name = was.name JOIN sqllock_leases e ON e.name = was.name
   SET l.owner = UNHEX(:owner), l.acquired_at = GREATEST(l.acquired_at + 1, {now}), l.lock_delay_us = :delay, l.host = UNHEX(:host), l.pid = :pid,
       l.label = UNHEX(:label), l.metadata = UNHEX(:metadata), l.strategy = UNHEX(:strategy), e.owner = UNHEX(:owner),
       e.expires_at = GREATEST(IF(was.owner = UNHEX(:owner), was.expires_at, 0), {now} + :lease)
 WHERE was.name = UNHEX(:name)

-- name: insert.pass
UPDATE sqllock_inserts SET owner = UNHEX(:owner) WHERE name = UNHEX(:name) AND owner = UNHEX(:from)

-- name: grant.release
-- name: grant.release telling
-- The query says whether somebody waits.
SELECT waiting <> 0 FROM sqllock_leases WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) FOR UPDATE
-- then
UPDATE sqllock_leases SET owner = '', expires_at = 0 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: grant.release-tx
UPDATE sqllock_leases SET owner = '', expires_at = 0 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: grant.release-later
UPDATE sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
   SET e.owner = '', e.expires_at = l.acquired_at + :min_hold - l.lock_delay_us
 WHERE e.name = UNHEX(:name) AND e.owner = UNHEX(:owner)

-- name: grant.force
-- Both rows at once; or, beside a guard, only the one that it leaves alone, which says why the grant ended: an operator
-- does not wait for the guard, the next holder does.
SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(:name) AND e.owner = UNHEX(:owner) AND l.token = :token FOR UPDATE NOWAIT
-- then
UPDATE sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
   SET l.owner = '', e.ended = IF(UNHEX(:owner) = '', e.ended, UNHEX(:ended)), e.owner = '', e.expires_at = 0, l.lock_delay_us = 0
 WHERE l.name = UNHEX(:name)

-- name: grant.force-lease
UPDATE sqllock_leases SET ended = UNHEX(:ended), owner = '', expires_at = 0
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND owner <> ''

-- name: insert.gone
-- A row of insert is told by its owner, whom no later row of the name has.
DELETE FROM sqllock_inserts WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: grant.brief
-- Lets what follows on a session wait for a row lock as briefly as the server can, which is a second.
SET @sqllock_lock_wait = CAST(COALESCE(@sqllock_lock_wait, @@SESSION.innodb_lock_wait_timeout) AS UNSIGNED), SESSION innodb_lock_wait_timeout = 1

-- name: grant.patient
SET SESSION innodb_lock_wait_timeout = CAST(COALESCE(@sqllock_lock_wait, @@GLOBAL.innodb_lock_wait_timeout) AS UNSIGNED), @sqllock_lock_wait = NULL


-- Guard. There is no shared row lock, and a query sees rows as they are now if it locks them, also in a subquery. In an
-- optimistic transaction the write is what the commit fails by.

-- name: grant.guard-snapshot
SELECT acquired_at FROM sqllock_locks WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND token = :token

-- name: grant.guard-write
-- A change, and not a write of the same.
UPDATE sqllock_locks SET guards = guards + 1
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND token = :token AND acquired_at = :acquired

-- name: grant.date
SELECT name FROM sqllock_locks WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND token = :token FOR UPDATE NOWAIT
-- then
UPDATE sqllock_locks SET acquired_at = GREATEST(acquired_at + 1, {now}) WHERE name = UNHEX(:name)

-- name: grant.unguarded
-- As the next acquisition would lock it.
SELECT name FROM sqllock_locks WHERE name = UNHEX(:name) FOR UPDATE NOWAIT


-- Look

-- True of a row whose readers all have left, or died.
-- let left = LEFT(e.owner, 7) = {shared} AND s.owner IS NULL

-- Holders, and each of the readers. From the tables: the view is for people, in the character set of their connection.
-- let holders = SELECT l.name, l.strategy, l.token, IF({left}, '', COALESCE(s.host, l.host)),
--        IF({left}, 0, COALESCE(s.pid, l.pid)), IF({left}, '', COALESCE(s.label, l.label)),
--        IF({left}, '', COALESCE(s.metadata, l.metadata)),
--        {now} - COALESCE(s.acquired_at, l.acquired_at), COALESCE(s.expires_at, e.expires_at) - {now}, l.lock_delay_us,
--        IF({left}, '', COALESCE(s.owner, e.owner)), LEFT(e.owner, 7) = {shared}
--   FROM sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
--   LEFT JOIN sqllock_shares s ON s.name = e.name AND s.phase = e.owner AND s.expires_at > {now}

-- name: grant.holders
-- No name has a byte FF, so that this is the range of those that begin with the prefix.
{holders}
 WHERE e.expires_at + l.lock_delay_us > {now} AND e.name >= UNHEX(:prefix) AND e.name < CONCAT(UNHEX(:prefix), X'FF')
 ORDER BY l.name, s.acquired_at, s.owner LIMIT :limit

-- name: grant.slots
{holders}
 WHERE (e.name = UNHEX(:name) OR e.name > UNHEX(:above) AND e.name < UNHEX(:below)) AND e.expires_at + l.lock_delay_us > {now}
 ORDER BY l.name, s.acquired_at, s.owner LIMIT :limit


-- Reap

-- name: grant.expired
-- Names are listed first and ended one by one: a range UPDATE or DELETE would be in the way of renewals.
SELECT l.name, e.owner FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE e.owner <> '' AND e.expires_at + l.lock_delay_us <= {now} ORDER BY l.name LIMIT 1000

-- name: grant.end
SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE l.name = UNHEX(:name) AND e.owner <> '' AND e.expires_at + l.lock_delay_us <= {now} FOR UPDATE NOWAIT
-- then
UPDATE sqllock_leases SET ended = 'expired', owner = '' WHERE name = UNHEX(:name)

-- Rows that are not in use, for an age, or whose maker died before it made the row of the lease: those of which nothing is
-- noted, or those whose tick was 366 days ago. A job that is later than that would be done again.
-- let idle = l.acquired_at < {now} - :age AND (e.name IS NULL OR e.owner = '' AND e.expires_at + l.lock_delay_us <= {now}
--    AND e.waiting <= {now} - :age AND e.tick = 0 AND e.ended = '')
-- let forgotten = l.acquired_at < {now} - :age AND (e.name IS NULL OR e.owner = '' AND e.expires_at + l.lock_delay_us <= {now}
--    AND e.waiting <= {now} - :age AND e.tick < {now} - 31622400000000)
-- let unused = NOT EXISTS (SELECT 1 FROM sqllock_queue q WHERE q.name = SUBSTRING_INDEX(l.name, CHAR(31), 1) AND q.expires_at > {now})
--    AND NOT EXISTS (SELECT 1 FROM sqllock_shares s WHERE s.name = l.name)

-- name: grant.idle
-- Without a lock: a statement that looks through the table would keep others from its rows.
SELECT l.name FROM sqllock_locks l LEFT JOIN sqllock_leases e ON e.name = l.name
 WHERE {idle}
   AND {unused}
 LIMIT :limit

-- name: grant.forgotten
SELECT l.name FROM sqllock_locks l LEFT JOIN sqllock_leases e ON e.name = l.name
 WHERE {forgotten}
   AND {unused}
 LIMIT :limit

-- name: group.begin
BEGIN

-- let lock-idle = SELECT l.name, l.token FROM sqllock_locks l FORCE INDEX (PRIMARY) LEFT JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name

-- name: grant.lock-idle
{lock-idle}
 WHERE l.name IN (UNHEX(:names)...) AND {idle}
   AND (e.name IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sqllock_leases x WHERE x.name = l.name))
   FOR UPDATE NOWAIT

-- name: grant.lock-forgotten
{lock-idle}
 WHERE l.name IN (UNHEX(:names)...) AND {forgotten}
   AND (e.name IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sqllock_leases x WHERE x.name = l.name))
   FOR UPDATE NOWAIT

-- name: grant.floor
INSERT INTO sqllock_floor (id, token) VALUES (1, :token) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))

-- name: grant.remove
DELETE l FROM sqllock_locks l FORCE INDEX (PRIMARY) WHERE l.name IN (UNHEX(:names)...)

-- name: grant.remove-leases
DELETE e FROM sqllock_leases e FORCE INDEX (PRIMARY) WHERE e.name IN (UNHEX(:names)...)

-- name: grant.remove-leftover inserts
SELECT t.name FROM sqllock_inserts t FORCE INDEX (PRIMARY) WHERE t.name IN (UNHEX(:names)...) FOR UPDATE NOWAIT
-- then
DELETE t FROM sqllock_inserts t FORCE INDEX (PRIMARY) WHERE t.name IN (UNHEX(:names)...)

-- name: group.commit
COMMIT

-- name: group.rollback
ROLLBACK

-- name: insert.stale
-- Rows whose owner no longer has the name: their holders crashed, or another strategy took the name over.
SELECT i.name, i.owner FROM sqllock_inserts i LEFT JOIN sqllock_leases e ON e.name = i.name AND e.owner = i.owner
 WHERE e.name IS NULL ORDER BY i.name LIMIT 1000

-- name: insert.clear-stale
SELECT name FROM sqllock_inserts WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) FOR UPDATE NOWAIT
-- then
DELETE FROM sqllock_inserts WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)


-- Notes

-- name: notes.read
-- A guard locks the name's row in sqllock_locks, and not this one.
SELECT owner, expires_at - {now}, tick, asked FROM sqllock_leases WHERE name = UNHEX(:name)

-- name: notes.mark
UPDATE sqllock_leases SET tick = GREATEST(tick, :mark) WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: notes.ask
UPDATE sqllock_leases SET asked = CONCAT(owner, ' ', UNHEX(:reason))
 WHERE name = UNHEX(:name) AND owner <> '' AND expires_at > {now}


-- Readers. Of the name's rows only the lease's are changed, as a renewal does: a guard has the other.

-- name: share.enter
INSERT INTO sqllock_shares (name, owner, phase, expires_at, acquired_at, host, pid, label, metadata)
VALUES (UNHEX(:name), UNHEX(:owner), UNHEX(:phase), {now} + :lease, {now}, UNHEX(:host), :pid, UNHEX(:label), UNHEX(:metadata))
    ON DUPLICATE KEY UPDATE expires_at = IF(phase = UNHEX(:phase), GREATEST(expires_at, {now} + :lease), {now} + :lease), phase = UNHEX(:phase)

-- name: share.keep
UPDATE sqllock_shares SET expires_at = GREATEST(expires_at, {now} + :lease)
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND phase = UNHEX(:phase)

-- name: share.leave
DELETE FROM sqllock_shares WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: share.join
SELECT name FROM sqllock_leases
 WHERE name = UNHEX(:name) AND owner = UNHEX(:phase) AND expires_at > {now} AND (waiting = 0 OR :first) FOR UPDATE NOWAIT
-- then
UPDATE sqllock_leases
   SET expires_at = GREATEST(expires_at, {now} + :lease), joins = joins + 1,
       waiting = IF(waiting = :line AND waiting < {now} - 5000000, 0, waiting)
 WHERE name = UNHEX(:name)

-- name: share.prolong
UPDATE sqllock_leases SET expires_at = GREATEST(expires_at, {now} + :lease), joins = joins + 1
 WHERE name = UNHEX(:name) AND owner = UNHEX(:phase)

-- name: share.phase
SELECT owner, joins, expires_at - {now} FROM sqllock_leases WHERE name = UNHEX(:name)

-- name: share.longest
SELECT COALESCE(MAX(expires_at) - {now}, 0) FROM sqllock_shares WHERE name = UNHEX(:name) AND phase = UNHEX(:phase)

-- name: share.reader
SELECT phase, expires_at - {now} FROM sqllock_shares WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: share.readers
SELECT owner FROM sqllock_shares WHERE name = UNHEX(:name) AND phase = UNHEX(:phase)

-- name: share.holder
SELECT host, pid, label, metadata FROM sqllock_shares WHERE name = UNHEX(:name) AND phase = UNHEX(:phase) ORDER BY expires_at DESC LIMIT 1

-- name: share.end
SELECT waiting <> 0 FROM sqllock_leases WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND joins = :joins FOR UPDATE
-- then
UPDATE sqllock_leases SET owner = '', expires_at = 0 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND joins = :joins

-- name: share.shorten
UPDATE sqllock_leases SET expires_at = LEAST(expires_at, {now} + :left)
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND joins = :joins

-- name: share.stale
SELECT name, owner FROM sqllock_shares WHERE expires_at < {now} - 60000000 ORDER BY name, owner LIMIT 1000

-- name: share.clear
DELETE FROM sqllock_shares
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND expires_at < {now} - 60000000


-- The line

-- name: queue.enqueue
-- name: queue.enqueue-each
-- First the entry, so that nobody who sees the new number misses it. The number changes every two seconds at most, for a
-- commit costs much, and is forgotten when it is five seconds old: who forgets it has seen the line when it was old, and
-- not this entry. Nobody's row lock is waited for.
INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, behind, slots, shared)
VALUES (UNHEX(:process), UNHEX(:id), UNHEX(:name), {now} - :waited, {now} + :ttl, UNHEX(:host), :pid, UNHEX(:label), UNHEX(:metadata), UNHEX(:holding), :behind, :slots, :shared)
    ON DUPLICATE KEY UPDATE expires_at = {now} + :ttl, ticket = IF(behind, {now} - :waited, ticket), behind = :behind

-- name: queue.wait
-- name: queue.wait-each
SELECT name, expires_at > {now} FROM sqllock_leases
 WHERE name = UNHEX(:name) AND waiting < {now} - 2000000 FOR UPDATE NOWAIT
-- then
UPDATE sqllock_leases SET waiting = {now} WHERE name = UNHEX(:name)

-- name: queue.enqueue-slots
-- One that somebody has locked leaves the others as they are, too: who waits is known by the rows alone that are not.
SELECT name FROM sqllock_leases
 WHERE name > UNHEX(:above) AND name < UNHEX(:below) AND waiting < {now} - 2000000 FOR UPDATE NOWAIT
-- then
UPDATE sqllock_leases SET waiting = {now}
 WHERE name > UNHEX(:above) AND name < UNHEX(:below) AND waiting < {now} - 2000000

-- name: queue.taken-each
-- The number is fresh enough for as long as nobody forgets it, and what was taken when it was there will be told.
SELECT name, expires_at > {now} FROM sqllock_leases WHERE name = UNHEX(:name) AND waiting > {now} - 3000000

-- name: queue.keep
UPDATE sqllock_queue SET expires_at = {now} + :ttl WHERE process = UNHEX(:process)

-- name: queue.leave
DELETE FROM sqllock_queue
 WHERE process = UNHEX(:process) AND JSON_CONTAINS(JSON_EXTRACT(CONVERT(UNHEX(:calls) USING utf8mb4), _utf8mb4'$[*].id'), JSON_QUOTE(CONVERT(id USING utf8mb4)))

-- let ahead = o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id

-- name: queue.stand
-- Nobody is ahead of a reader who has readers only before it, nor in its way while readers have the name.
SELECT q.name, q.id, IF(q.shared AND COALESCE(SUM(({ahead}) AND NOT o.shared), 0) = 0, 0, COALESCE(SUM({ahead}), 0)),
       COALESCE(MIN(IF({ahead}, o.expires_at, NULL)) - {now}, 0),
       IF(q.shared AND LEFT(e.owner, 7) = {shared}, 0, COALESCE(e.expires_at + l.lock_delay_us - {now}, 0)), COALESCE(e.waiting, 0),
       COUNT(o.id) + COALESCE(e.waiting > {now} - 2000000, 0), q.slots
  FROM sqllock_queue q
  LEFT JOIN sqllock_leases e ON e.name = q.name
  LEFT JOIN sqllock_locks l ON l.name = q.name
  LEFT JOIN sqllock_queue o ON o.name = q.name AND o.id <> q.id AND o.id <> COALESCE(e.wait, '') AND NOT o.behind AND o.expires_at > {now}
 WHERE q.process = UNHEX(:process) AND NOT q.behind
 GROUP BY q.name, q.id, q.ticket, q.slots, q.shared, e.expires_at, l.lock_delay_us, e.waiting, e.owner

-- name: queue.waiters
SELECT q.name, q.process, q.id, q.ticket, {now} - q.ticket, q.host, q.pid, q.label, q.metadata, q.holding, q.behind,
       CASE WHEN e.expires_at > {now} AND q.slots = 1 THEN e.owner ELSE '' END, q.slots, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_leases e ON e.name = q.name
 WHERE q.expires_at > {now} AND q.id <> COALESCE(e.wait, '') AND (LENGTH(UNHEX(:name)) = 0 OR q.name = UNHEX(:name)) AND LEFT(q.name, LENGTH(UNHEX(:prefix))) = UNHEX(:prefix)
   AND q.name >= UNHEX(:from) AND q.name < CONCAT(UNHEX(:from), X'FF') AND (NOT :holds OR q.holding <> '')
 ORDER BY q.name, q.behind, q.ticket, q.id LIMIT :limit

-- name: queue.dead
SELECT process, id FROM sqllock_queue WHERE expires_at < {now} - 60000000 LIMIT 1000


-- Strategy insert. The record comes first: a crash after it leaves a name that is held until its lease ends. Nothing is read
-- from the number of rows that insert.insert changed, which clientFoundRows changes, but that it was not zero.

-- name: insert.look
SELECT COALESCE(i.owner, ''), e.owner, l.token, e.ended, e.expires_at - {now}, l.lock_delay_us,
       l.host, l.pid, l.label, l.metadata, e.waiting
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name LEFT JOIN sqllock_inserts i ON i.name = l.name WHERE l.name = UNHEX(:name)

-- name: insert.clear
SELECT i.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name JOIN sqllock_inserts i ON i.name = l.name
 WHERE l.name = UNHEX(:name) AND (e.expires_at + l.lock_delay_us <= {now} OR e.owner <> i.owner)
   FOR UPDATE NOWAIT
-- then
DELETE FROM sqllock_inserts WHERE name = UNHEX(:name)

-- name: insert.insert
-- Both rows are locked, as far as they are there.
SELECT e.name FROM sqllock_leases e LEFT JOIN sqllock_inserts i ON i.name = e.name
 WHERE e.name = UNHEX(:name) AND e.owner = UNHEX(:owner)
   FOR UPDATE NOWAIT
-- then
INSERT INTO sqllock_inserts (name, owner) VALUES (UNHEX(:name), UNHEX(:owner)) ON DUPLICATE KEY UPDATE owner = VALUES(owner)


-- What TiDB does without

-- insert takes the record as all do, and deletes its row before.
-- none: insert.acquire, insert.acquire from line, grant.release insert, grant.release telling insert, grant.release-later insert, grant.release-tx insert, share.end insert, insert.begin, insert.commit, insert.rollback

-- See above: there is no JSON_TABLE.
-- none: batch, insert.insert-all, insert.gone-all
-- none: queue.enqueue-all, queue.wait-all, queue.taken-all

-- A guard changes the row. Servers of one cluster grant as one.
-- none: grant.guard, grant.many-primaries

-- Transactions begin with group.begin. There is no forupdate.
-- none: grant.remove-isolate, grant.remove-begin, grant.remove-leftover mutexes

-- There are few sessions that others change, and it takes no error for an answer: nothing finds out.
-- none: grant.where

-- Nobody can be told or called.
-- none: notes.announce, queue.tell, queue.tell-all, queue.first, queue.call, queue.stand keeping

-- Row locks and named locks end without a word when they are an hour old.
-- none: forupdate, grant.acquire held, grant.acquire held from line, advisory

-- A commit is there on a majority of the stores.
-- none: recovery
