-- What is sent to MySQL and MariaDB. sql.go says how this file is read.

-- The start of the statement, in UTC. That is the moment of decision in an acquisition, which never waits for a row lock. A
-- renewal may wait, and gives a lease that is shorter by the wait, but no shorter than its holder trusts, who counts from
-- before the statement was sent.
--
-- SYSDATE would tell the time after the wait, but only as local time, which goes forward by an hour when summer time begins
-- (https://dev.mysql.com/doc/refman/9.7/en/date-and-time-functions.html#function_sysdate).
--
-- It is an error (1690) if the session's variable timestamp was set since the session was looked at, which stops that clock.
-- Some seconds may have passed since the start, and summer time may have begun or ended, which is half an hour in one place.
-- let passed = TIMESTAMPDIFF(SECOND, NOW(), SYSDATE())
-- let clock = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
-- let now = {clock} + 0 * (9223372036854775807 + (MOD({passed} + 3600, 1800) > 10 OR {passed} NOT BETWEEN -3600 AND 3610))

-- True in a session that finds the tables which sqllock found first, whose statements commit, and whose answers are whole. A program
-- may have set it otherwise since (USE, SET autocommit=0, SET sql_select_limit). Then it is an error, too.
-- Whoever only looks at a replica has found none yet.
-- let elsewhere = UNHEX(:where) NOT IN ('', CAST(DATABASE() AS BINARY))
-- let unfit = NOT @@autocommit OR @@sql_select_limit < 1000
-- let unfit-now = {unfit} OR {passed} NOT BETWEEN 0 AND 10
-- let here = 9223372036854775807 + ({unfit} OR {elsewhere}) > 0

-- The same in an acquisition, which waits for nothing, so that no time has passed. It is an error, too, if the clock stands, so that
-- an acquisition reads {clock} beside it: the server reads each text anew, and a shorter one sooner.
-- let here-now = 9223372036854775807 + ({unfit-now} OR {elsewhere}) > 0

-- The same wherever the tables are, or else an error, for what takes no lock and waits for none: left open, its transaction would
-- keep rows locked that holders renew and release, and show those who wait the line as it was. By a clock that is set it would end
-- what still runs; {now} bears one that is half an hour ahead, which may be summer time.
-- let fit = 9223372036854775807 + ({unfit-now} OR @@completion_type <> 'NO_CHAIN') > 0

-- Which server this is, by what those of a replication tell each other apart by, and a constant where the commits of one are those of
-- all. To MariaDB the uuid is a comment.
-- let server = IF(UNHEX(:cluster) = '', CONCAT(@@global.server_id /*!80000 , ' ', @@server_uuid */), UNHEX(:cluster))

-- True unless a server that has become the primary may lack grants of the one before, or a grant would last longer than has been
-- noted: see recovery.go. It is a value, and no EXISTS, which MySQL would make a join of, whose rows FOR UPDATE locks.
--
-- What an UPDATE of several tables reads it locks, whatever the isolation (MySQL 9.7, MariaDB 11.8). While another transaction has
-- the row locked, which notes something, nothing is granted on it; see recovery.settle.
-- let row-of-recovery = FROM sqllock_recovery v WHERE v.id = 1 /*!80000 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */
-- let granting = (SELECT (v.server = {server} OR v.lossless) AND v.paused_until <= {clock} AND v.allowed_us >= :promise {row-of-recovery})

-- True of a lease that may be renewed. One that has expired is not renewed in a recovery pause: what has ended it may be lost. One that
-- runs is, while the row is locked: what it allowed before is forgotten only when it allows less for longer than that lasts.
-- let renewable = IF(expires_at > {now}, COALESCE((SELECT v.allowed_us >= :promise {row-of-recovery}), 1), {granting})

-- Goes before what is sent in a caller's transaction, and lets it change a row that was changed since the snapshot, as
-- MySQL does: the lease is renewed meanwhile. MariaDB rolls the whole transaction back otherwise (error 1020), by default
-- from 11.6.2 on (https://mariadb.com/docs/server/server-usage/storage-engines/innodb/innodb-system-variables#innodb_snapshot_isolation).
-- To MySQL it is a comment.
-- let latest = /*M!110602 SET STATEMENT innodb_snapshot_isolation=OFF FOR */

-- How the owner of a phase begins, "shared-", in whatever character set the connection has.
-- let shared = 0x7368617265642D

-- What MySQL and MariaDB read of the JSON array of calls, names and owners and more, in whatever character set the
-- connection has: the text comes as hexadecimal digits, and paths are said to be UTF-8, without which MySQL 9.7 takes them
-- for binary where the connection is (error 3144). Names and owners are bytes in the tables, and here: CONVERT, not CAST,
-- for which MariaDB 11.8 makes a table on disk, several times slower. It is a query of its own, with a LIMIT that keeps it
-- so: beside JSON_TABLE itself MySQL 9.7 refuses FOR UPDATE (error 3569).
--
-- Below it FORCE INDEX keeps a small table from being scanned, as MariaDB 11.8 does: that would lock the rows of others.
--
-- The names and owners of the calls; with their named locks; with what an acquisition reads; and with both.
-- let owners = (SELECT CONVERT(name USING binary) AS name, CONVERT(owner USING binary) AS owner
--           FROM JSON_TABLE(CONVERT(UNHEX(:calls) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
--         name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name', owner VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.owner'
--     )) calls LIMIT 1000) a
-- let keys = (SELECT CONVERT(name USING binary) AS name, CONVERT(owner USING binary) AS owner, lock_key
--           FROM JSON_TABLE(CONVERT(UNHEX(:calls) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
--         name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name', owner VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.owner', lock_key VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.key'
--     )) calls LIMIT 1000) a
-- let paths = lease BIGINT PATH _utf8mb4'$.lease', delay BIGINT PATH _utf8mb4'$.delay', host VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.host',
--         pid BIGINT PATH _utf8mb4'$.pid', label VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.label',
--         metadata VARCHAR(4096) CHARACTER SET utf8mb4 PATH _utf8mb4'$.metadata', tokens BIGINT PATH _utf8mb4'$.tokens',
--         first BOOLEAN PATH _utf8mb4'$.first', line BIGINT PATH _utf8mb4'$.line',
--         wait VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.wait'
-- let wanted = (SELECT CONVERT(name USING binary) AS name, CONVERT(owner USING binary) AS owner, lease, delay, host, pid, label, metadata, tokens, first, line, CONVERT(wait USING binary) AS wait
--           FROM JSON_TABLE(CONVERT(UNHEX(:calls) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
--         name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name', owner VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.owner',
--         {paths}
--     )) calls LIMIT 1000) a
-- let wanted-keys = (SELECT CONVERT(name USING binary) AS name, CONVERT(owner USING binary) AS owner, lease, delay, host, pid, label, metadata, tokens, first, line, CONVERT(wait USING binary) AS wait, lock_key
--           FROM JSON_TABLE(CONVERT(UNHEX(:calls) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
--         name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name', owner VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.owner',
--         {paths}, lock_key VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.key'
--     )) calls LIMIT 1000) a

-- What is read of the JSON array of waiters.
-- let waiters = (SELECT CONVERT(id USING binary) AS id, CONVERT(name USING binary) AS name, host, pid, label, metadata, holding, waited, shared
--           FROM JSON_TABLE(CONVERT(UNHEX(:calls) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (
--         id VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$.id', name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name',
--         host VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.host', pid BIGINT PATH _utf8mb4'$.pid',
--         label VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.label', metadata VARCHAR(4096) CHARACTER SET utf8mb4 PATH _utf8mb4'$.metadata',
--         holding VARCHAR(8192) CHARACTER SET utf8mb4 PATH _utf8mb4'$.holding', waited BIGINT PATH _utf8mb4'$.waited',
--         shared BOOLEAN PATH _utf8mb4'$.shared'
--     )) calls LIMIT 1000) a


-- Acquire

-- UPDATE has no SKIP LOCKED, but a derived table has. LIMIT keeps MySQL from merging it into the outer query and
-- STRAIGHT_JOIN from reading the rows to update first, with a lock that waits (seen on 9.7 without them; MariaDB 11.8 needs
-- neither).
--
-- It is IF and no AND of its own, so that {here-now} comes first: of an AND both servers evaluate what is constant in a name's row as
-- they plan, so that a lock that is held would be no error in a session that is not to be used, but a transaction that stays open.
--
-- free.mine is about the owner before: assignments in an UPDATE of two tables come in no certain order.
--
-- LAST_INSERT_ID(expr) brings the token back with the answer, so that it is one round trip on servers without
-- UPDATE ... RETURNING (https://dev.mysql.com/doc/refman/9.7/en/information-functions.html#function_last-insert-id).
-- let take = l.token = LAST_INSERT_ID(IF(free.mine, l.token, GREATEST(l.token + :tokens, free.moment))), l.owner = UNHEX(:owner), l.lock_delay_us = :delay,
--        l.acquired_at = free.moment, l.host = UNHEX(:host), l.pid = :pid, l.label = UNHEX(:label), l.metadata = UNHEX(:metadata), l.strategy = UNHEX(:strategy),
--        e.ended = '', e.owner = UNHEX(:owner), e.wait = UNHEX(:wait),
--        e.waiting = IF(e.waiting = :line AND e.waiting < free.moment - 5000000, 0, e.waiting),
--        e.expires_at = GREATEST(IF(free.mine, e.expires_at, 0), free.moment + :lease)

-- let acquire = STRAIGHT_JOIN sqllock_locks l ON l.name = free.name
-- STRAIGHT_JOIN sqllock_leases e ON e.name = free.name
--    SET {take}

-- name: cas.acquire
-- name: cas.acquire from line
-- name: grant.acquire
-- name: grant.acquire from line
UPDATE (
    SELECT l.name, e.owner = UNHEX(:owner) AS mine, {clock} AS moment FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(:name) AND IF({here-now}, l.token <> 0 AND {granting}
       AND (e.owner = UNHEX(:owner) OR (e.waiting = 0 OR :first) AND (e.expires_at + l.lock_delay_us <= {clock})), 0)
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
{acquire}

-- A lease that runs is in nobody's way who has the lock of the session, see Replaces.
-- let instead = OR l.strategy = UNHEX(:session) AND (l.token = :seen OR :seen < 0)

-- name: grant.acquire held
-- name: grant.acquire held from line
-- While a session has the lock: nothing is granted if no session has the named lock any more that marks it.
UPDATE (
    SELECT l.name, e.owner = UNHEX(:owner) AS mine, {clock} AS moment FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(:name) AND IF({here-now}, l.token <> 0 AND {granting}
       AND (e.owner = UNHEX(:owner) OR (e.waiting = 0 OR :first) AND (e.expires_at + l.lock_delay_us <= {clock}
            {instead})) AND IS_USED_LOCK(UNHEX(:held)) IS NOT NULL, 0)
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
{acquire}

-- name: grant.create
INSERT INTO sqllock_locks (name, acquired_at) VALUES (UNHEX(:name), {now}) ON DUPLICATE KEY UPDATE name = sqllock_locks.name

-- name: grant.create-lease
INSERT INTO sqllock_leases (name) VALUES (UNHEX(:name)) ON DUPLICATE KEY UPDATE name = sqllock_leases.name

-- name: grant.ready
-- The floor is read when the row is locked, as the table that is joined to it.
UPDATE sqllock_locks l LEFT JOIN sqllock_floor f ON true SET l.token = GREATEST(1, COALESCE(f.token, 0))
 WHERE l.name = UNHEX(:name) AND l.token = 0

-- name: grant.where
-- The schema that the session is in, if any, and if it is fit; whether the tables that were found before are still there; as whom
-- it acts; and nothing about temporary tables, which no statement shows.
SELECT IF({unfit-now}, '', COALESCE(CAST(DATABASE() AS BINARY), '')),
       EXISTS (SELECT 1 FROM information_schema.tables t WHERE CAST(t.table_schema AS BINARY) = UNHEX(:where) AND t.table_name = 'sqllock_locks'),
       CAST(CONCAT(CURRENT_USER(), ' ', COALESCE(CURRENT_ROLE(), '')) AS BINARY), false LIMIT 1

-- name: grant.protocol
SELECT p.protocol FROM sqllock_protocol p

-- name: grant.state
SELECT e.owner, l.token, e.ended, e.expires_at - {now}, l.lock_delay_us, l.host, l.pid, l.label, l.metadata, e.waiting
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name WHERE l.name = UNHEX(:name)


-- Renew and release

-- name: grant.renew
-- The lease's own row only: a guard has the other.
UPDATE sqllock_leases SET expires_at = GREATEST(expires_at, {now} + :lease) WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND {here} AND {renewable}

-- name: grant.raise
-- The owner of the lease decides, as in a renewal: that in the other row is of the last acquisition, and stays when it is
-- released. Both rows are locked, so that the grant cannot end meanwhile; one that a renewal has is skipped.
UPDATE (
    SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(:name) AND e.owner = UNHEX(:owner) AND {here} LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
   SET l.token = LAST_INSERT_ID(GREATEST(l.token, :token))

-- name: grant.pass
-- Both rows are locked as by an acquisition, so that a guard of who had it is in the way. acquired_at changes for the sake of
-- snapshots that are older. Who has it already is answered as at first.
UPDATE (
    SELECT l.name, e.owner = UNHEX(:owner) AS mine, {clock} AS moment FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(:name) AND IF({here-now}, l.token = :token AND {granting}
       AND (e.owner = UNHEX(:from) OR e.owner = UNHEX(:owner)) AND e.expires_at > {clock}, 0)
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_locks l ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e ON e.name = free.name
   SET l.token = LAST_INSERT_ID(l.token), l.owner = UNHEX(:owner), l.acquired_at = GREATEST(l.acquired_at + 1, free.moment), l.lock_delay_us = :delay,
       l.host = UNHEX(:host), l.pid = :pid, l.label = UNHEX(:label), l.metadata = UNHEX(:metadata), l.strategy = UNHEX(:strategy), e.owner = UNHEX(:owner),
       e.expires_at = GREATEST(IF(free.mine, e.expires_at, 0), free.moment + :lease)

-- name: insert.pass
UPDATE sqllock_inserts SET owner = UNHEX(:owner) WHERE name = UNHEX(:name) AND owner = UNHEX(:from)

-- name: grant.release
-- name: grant.release telling
-- The insert id says whether somebody waits.
UPDATE sqllock_leases SET owner = '', expires_at = 0 * LAST_INSERT_ID(waiting <> 0)
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND {here}

-- name: grant.release-tx
-- The insert id of the caller's session is left alone.
{latest} UPDATE sqllock_leases SET owner = '', expires_at = 0 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: grant.release-later
{latest} UPDATE sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
   SET e.owner = '', e.expires_at = l.acquired_at + :min_hold - l.lock_delay_us
 WHERE e.name = UNHEX(:name) AND e.owner = UNHEX(:owner) AND {here}

-- name: grant.force
-- Both rows at once; or, beside a guard, only the one that it leaves alone, which says why the grant ended: an operator
-- does not wait for the guard, the next holder does.
UPDATE (SELECT name FROM sqllock_locks WHERE name = UNHEX(:name) LIMIT 1 FOR UPDATE SKIP LOCKED) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET l.owner = '', e.ended = IF(UNHEX(:owner) = '', e.ended, UNHEX(:ended)), e.owner = '', e.expires_at = 0, l.lock_delay_us = 0
 WHERE {fit} AND e.owner = UNHEX(:owner) AND l.token = :token

-- name: grant.force-lease
UPDATE sqllock_leases SET ended = UNHEX(:ended), owner = '', expires_at = 0
 WHERE name = UNHEX(:name) AND {fit} AND owner = UNHEX(:owner) AND owner <> ''

-- name: insert.gone
-- A row of insert is told by its owner, whom no later row of the name has.
DELETE FROM sqllock_inserts WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: grant.brief
-- Lets what follows on a session wait for a row lock as briefly as the server can, which is a second.
SET @sqllock_lock_wait = CAST(COALESCE(@sqllock_lock_wait, @@SESSION.innodb_lock_wait_timeout) AS UNSIGNED), SESSION innodb_lock_wait_timeout = 1

-- name: grant.patient
SET SESSION innodb_lock_wait_timeout = CAST(COALESCE(@sqllock_lock_wait, @@GLOBAL.innodb_lock_wait_timeout) AS UNSIGNED), @sqllock_lock_wait = NULL


-- Recovery

-- name: recovery.cluster
-- What says that a commit is there on the server that becomes the primary.
SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
    OR (Variable_name = 'group_replication_group_name' AND Value <> '')

-- name: recovery.state
SELECT v.server = {server} OR v.lossless, v.allowed_us >= :promise, GREATEST(v.paused_until - {now}, 0),
       v.server, {server}, v.previous, v.reason, v.lossless, false, false, v.changes, v.longest_us, v.longest_by, false
  FROM sqllock_recovery v WHERE v.id = 1

-- let moved = server <> '' AND server <> {server} AND NOT lossless

-- name: recovery.note
-- The columns are set in this order, each by what is there by then.
INSERT INTO sqllock_recovery (id, server, allowed_us, allowed_by, longest_us, longest_by, lowered_at)
VALUES (1, {server}, :promise, UNHEX(:by), :promise, UNHEX(:by), {now})
    ON DUPLICATE KEY UPDATE
       changes = CASE WHEN NOT ({moved}) THEN changes WHEN paused_until > {now} THEN changes + 1 ELSE 1 END,
       paused_until = IF({moved}, GREATEST(paused_until, {now} + longest_us), paused_until),
       reason = IF({moved}, UNHEX(:reason), reason),
       longest_by = IF(longest_us < :promise, UNHEX(:by), longest_by), allowed_by = IF(allowed_us < :promise, UNHEX(:by), allowed_by),
       longest_us = GREATEST(longest_us, :promise), allowed_us = GREATEST(allowed_us, :promise),
       previous = IF(server = {server}, previous, server), server = {server}

-- name: recovery.settle
SELECT 1 FROM sqllock_recovery WHERE id = 1 AND {fit} LOCK IN SHARE MODE

-- name: recovery.lower
-- The longest promise is forgotten in two steps. From the first on nothing that long is granted without being noted again, and the
-- second comes when what was granted before is over.
UPDATE sqllock_recovery SET allowed_us = 0, lowered_at = {now} WHERE id = 1 AND {fit} AND lowered_at < {now} - longest_us - 86400000000

-- name: recovery.forget
UPDATE sqllock_recovery SET longest_us = allowed_us, longest_by = allowed_by
 WHERE id = 1 AND {fit} AND longest_us > allowed_us AND lowered_at < {now} - longest_us - 300000000

-- name: recovery.end
UPDATE sqllock_recovery SET paused_until = {now}, reason = UNHEX(:reason), server = {server}
 WHERE id = 1 AND {fit} AND (server <> {server} OR paused_until > {now})

-- name: recovery.lossless
-- It ends a pause. What else there is of one goes on, and its reason stays beside this one. The columns are set in this order.
INSERT INTO sqllock_recovery (id, lossless, reason, lowered_at) VALUES (1, :lossless, UNHEX(:reason), IF({fit}, {now}, 0))
    ON DUPLICATE KEY UPDATE
       reason = IF(paused_until > {now} AND NOT :lossless, LEFT(CONCAT(reason, '; ', UNHEX(:reason)), 512), UNHEX(:reason)),
       lossless = :lossless, paused_until = IF(:lossless, LEAST(paused_until, {now}), paused_until)


-- Guard

-- name: grant.guard
-- A locking read: in REPEATABLE READ a plain one would still see the owner of the transaction's snapshot. This form is
-- both MySQL's and MariaDB's.
--
-- The subquery is a plain one: the locking clause is of the outer query only
-- (https://dev.mysql.com/doc/refman/9.7/en/innodb-locking-reads.html). It sees the row as the transaction's other reads see
-- it, and if that is not the latest the token is zero. On MariaDB with innodb_snapshot_isolation=ON the locking read
-- refuses by itself.
SELECT IF(acquired_at = (SELECT s.acquired_at FROM sqllock_locks s WHERE s.name = UNHEX(:name) AND s.token = :token), token, 0)
  FROM sqllock_locks WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND token = :token LOCK IN SHARE MODE

-- name: grant.guard-snapshot
SELECT acquired_at FROM sqllock_locks WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND token = :token

-- name: grant.guard-write
-- A change, and not a write of the same: that enters no write set.
UPDATE sqllock_locks SET guards = guards + 1
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND token = :token AND acquired_at = :acquired

-- name: grant.date
UPDATE (
    SELECT name FROM sqllock_locks WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND token = :token LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_locks l ON l.name = held.name
   SET l.acquired_at = GREATEST(l.acquired_at + 1, {now})

-- name: grant.unguarded
-- As the next acquisition would lock it.
SELECT name FROM sqllock_locks WHERE name = UNHEX(:name) AND {fit} FOR UPDATE SKIP LOCKED

-- name: grant.many-primaries
SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
    OR (Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF')


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
-- Names are listed first and ended one by one: a range UPDATE or DELETE deadlocks with renewals.
SELECT l.name, e.owner FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
 WHERE e.owner <> '' AND e.expires_at + l.lock_delay_us <= {now} ORDER BY l.name LIMIT 1000

-- name: grant.end
UPDATE (
    SELECT l.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(:name) AND {fit} AND e.owner <> '' AND e.expires_at + l.lock_delay_us <= {now}
     LIMIT 1 FOR UPDATE SKIP LOCKED
) dead
STRAIGHT_JOIN sqllock_leases e ON e.name = dead.name
   SET e.ended = 'expired', e.owner = ''

-- Rows that are not in use, for an age, or whose maker died before it made the row of the lease: those of which nothing is
-- noted, or those whose tick was 366 days ago. A job that is later than that would be done again.
-- let idle = l.acquired_at < {now} - :age AND (e.name IS NULL OR e.owner = '' AND e.expires_at + l.lock_delay_us <= {now}
--    AND e.waiting <= {now} - :age AND e.tick = 0 AND e.ended = '') AND {fit}
-- let forgotten = l.acquired_at < {now} - :age AND (e.name IS NULL OR e.owner = '' AND e.expires_at + l.lock_delay_us <= {now}
--    AND e.waiting <= {now} - :age AND e.tick < {now} - 31622400000000) AND {fit}
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

-- name: grant.remove-isolate
-- Under READ COMMITTED no gaps between rows are locked, in which others make theirs.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: grant.remove-begin
START TRANSACTION

-- By the primary key: others would be locked, too. A row of a lease that somebody has locked is skipped, as if it were
-- missing; the subquery locks nothing, and finds it.
-- let lock-idle = SELECT l.name, l.token FROM sqllock_locks l FORCE INDEX (PRIMARY) LEFT JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name

-- name: grant.lock-idle
{lock-idle}
 WHERE l.name IN (UNHEX(:names)...) AND {idle}
   AND (e.name IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sqllock_leases x WHERE x.name = l.name))
   FOR UPDATE SKIP LOCKED

-- name: grant.lock-forgotten
{lock-idle}
 WHERE l.name IN (UNHEX(:names)...) AND {forgotten}
   AND (e.name IS NOT NULL OR NOT EXISTS (SELECT 1 FROM sqllock_leases x WHERE x.name = l.name))
   FOR UPDATE SKIP LOCKED

-- name: grant.floor
INSERT INTO sqllock_floor (id, token) VALUES (1, :token) ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))

-- name: grant.remove
DELETE l FROM sqllock_locks l FORCE INDEX (PRIMARY) WHERE l.name IN (UNHEX(:names)...)

-- name: grant.remove-leases
DELETE e FROM sqllock_leases e FORCE INDEX (PRIMARY) WHERE e.name IN (UNHEX(:names)...)

-- As many as there are names: a LIMIT, which keeps the derived table from being merged, and is none
-- (https://dev.mysql.com/doc/refman/9.7/en/select.html).

-- name: grant.remove-leftover inserts
DELETE t FROM (
    SELECT name FROM sqllock_inserts FORCE INDEX (PRIMARY) WHERE name IN (UNHEX(:names)...) LIMIT 18446744073709551615 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_inserts t FORCE INDEX (PRIMARY) ON t.name = free.name

-- name: grant.remove-leftover mutexes
DELETE t FROM (
    SELECT name FROM sqllock_mutexes FORCE INDEX (PRIMARY) WHERE name IN (UNHEX(:names)...) LIMIT 18446744073709551615 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_mutexes t FORCE INDEX (PRIMARY) ON t.name = free.name

-- name: group.commit
COMMIT

-- name: group.rollback
ROLLBACK

-- name: insert.stale
-- Rows whose owner no longer has the name: their holders crashed, or another strategy took the name over.
SELECT i.name, i.owner FROM sqllock_inserts i LEFT JOIN sqllock_leases e ON e.name = i.name AND e.owner = i.owner
 WHERE e.name IS NULL ORDER BY i.name LIMIT 1000

-- name: insert.clear-stale
DELETE i FROM (SELECT name FROM sqllock_inserts WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) LIMIT 1 FOR UPDATE SKIP LOCKED) stale
STRAIGHT_JOIN sqllock_inserts i ON i.name = stale.name


-- Notes

-- name: notes.read
-- A guard locks the name's row in sqllock_locks, and not this one.
SELECT owner, expires_at - {now}, tick, asked FROM sqllock_leases WHERE name = UNHEX(:name) AND {here}

-- name: notes.mark
-- Not {here}: with ReleaseTx it is in a transaction of the caller's, where autocommit may be off.
{latest} UPDATE sqllock_leases SET tick = GREATEST(tick, :mark)
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND 9223372036854775807 + ({elsewhere}) > 0

-- name: notes.ask
UPDATE sqllock_leases SET asked = CONCAT(owner, ' ', UNHEX(:reason))
 WHERE name = UNHEX(:name) AND {here} AND owner <> '' AND expires_at > {now}


-- Readers. Of the name's rows only the lease's are changed, as a renewal does: a guard has the other.

-- name: share.enter
INSERT INTO sqllock_shares (name, owner, phase, expires_at, acquired_at, host, pid, label, metadata)
VALUES (UNHEX(:name), UNHEX(:owner), UNHEX(:phase), {now} + :lease, {now}, UNHEX(:host), :pid, UNHEX(:label), UNHEX(:metadata))
    ON DUPLICATE KEY UPDATE expires_at = IF(phase = UNHEX(:phase), GREATEST(expires_at, {now} + :lease), {now} + :lease), phase = UNHEX(:phase)

-- name: share.keep
UPDATE sqllock_shares SET expires_at = GREATEST(expires_at, {now} + :lease)
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND phase = UNHEX(:phase) AND {here} AND {renewable}

-- name: share.leave
DELETE FROM sqllock_shares WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND {fit}

-- name: share.join
UPDATE (
    SELECT name FROM sqllock_leases
     WHERE name = UNHEX(:name) AND owner = UNHEX(:phase) AND expires_at > {now} AND (waiting = 0 OR :first) AND {here} AND {granting}
     LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET e.expires_at = GREATEST(e.expires_at, {now} + :lease), e.joins = e.joins + 1,
       e.waiting = IF(e.waiting = :line AND e.waiting < {now} - 5000000, 0, e.waiting)

-- name: share.prolong
UPDATE sqllock_leases SET expires_at = GREATEST(expires_at, {now} + :lease), joins = joins + 1
 WHERE name = UNHEX(:name) AND owner = UNHEX(:phase) AND {here} AND {renewable}

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
UPDATE sqllock_leases SET owner = '', expires_at = 0 * LAST_INSERT_ID(waiting <> 0)
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND {fit} AND joins = :joins

-- name: share.shorten
UPDATE sqllock_leases SET expires_at = LEAST(expires_at, {now} + :left)
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND {fit} AND joins = :joins

-- name: share.stale
SELECT name, owner FROM sqllock_shares WHERE expires_at < {now} - 60000000 ORDER BY name, owner LIMIT 1000

-- name: share.clear
DELETE FROM sqllock_shares
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) AND {fit} AND expires_at < {now} - 60000000


-- The line. All by the primary key, in which those of a process are together: one after the other by an index, they would
-- be locked in another order by Leave.

-- name: queue.enqueue
-- First the entry, so that nobody who sees the new number misses it. The number changes every two seconds at most, for a
-- commit costs much, and is forgotten when it is five seconds old: who forgets it has seen the line when it was old, and
-- not this entry. Nobody's row lock is waited for.
INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, behind, slots, shared)
VALUES (UNHEX(:process), UNHEX(:id), UNHEX(:name), {now} - :waited, IF({fit}, {now} + :ttl, 0), UNHEX(:host), :pid, UNHEX(:label), UNHEX(:metadata), UNHEX(:holding), :behind, :slots, :shared)
    ON DUPLICATE KEY UPDATE expires_at = {now} + :ttl, ticket = IF(behind, {now} - :waited, ticket), behind = :behind

-- name: queue.wait
UPDATE (
    SELECT name FROM sqllock_leases WHERE name = UNHEX(:name) AND waiting < {now} - 2000000 LIMIT 1 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_leases e ON e.name = held.name
   SET e.waiting = {now} + 0 * LAST_INSERT_ID(e.expires_at > {now})

-- name: queue.enqueue-slots
UPDATE (
    SELECT name FROM sqllock_leases WHERE name > UNHEX(:above) AND name < UNHEX(:below) AND waiting < {now} - 2000000
     ORDER BY name LIMIT 1000 FOR UPDATE SKIP LOCKED
) slots
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = slots.name
   SET e.waiting = {now}

-- name: queue.enqueue-all
INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, shared)
SELECT UNHEX(:process), a.id, a.name, {now} - COALESCE(a.waited, :waited), IF({fit}, {now} + :ttl, 0), COALESCE(a.host, UNHEX(:host)), COALESCE(a.pid, :pid),
       COALESCE(a.label, UNHEX(:label)), COALESCE(a.metadata, UNHEX(:metadata)), COALESCE(a.holding, UNHEX(:holding)), COALESCE(a.shared, :shared) FROM {waiters}
    ON DUPLICATE KEY UPDATE expires_at = {now} + :ttl, ticket = IF(sqllock_queue.behind, {now} - COALESCE(a.waited, :waited), sqllock_queue.ticket), behind = false

-- name: queue.wait-all
UPDATE (
    SELECT e.name FROM {waiters} STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.waiting < {now} - 2000000
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) held
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = held.name
   SET e.waiting = {now}

-- name: queue.taken-all
-- The number is fresh enough for as long as nobody forgets it, and what was taken when it was there will be told.
SELECT e.name, e.expires_at > {now}
  FROM {waiters} STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
 WHERE e.waiting > {now} - 3000000

-- name: queue.keep
UPDATE sqllock_queue SET expires_at = {now} + :ttl WHERE process = UNHEX(:process) AND {fit}

-- name: queue.leave
DELETE q FROM {waiters}
STRAIGHT_JOIN sqllock_queue q FORCE INDEX (PRIMARY) ON q.process = UNHEX(:process) AND q.id = a.id
 WHERE {fit}

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
 WHERE q.process = UNHEX(:process) AND NOT q.behind AND {fit}
 GROUP BY q.name, q.id, q.ticket, q.slots, q.shared, e.expires_at, l.lock_delay_us, e.waiting, e.owner

-- name: queue.waiters
SELECT q.name, q.process, q.id, q.ticket, {now} - q.ticket, q.host, q.pid, q.label, q.metadata, q.holding, q.behind,
       CASE WHEN e.expires_at > {now} AND q.slots = 1 THEN e.owner ELSE '' END, q.slots, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_leases e ON e.name = q.name
 WHERE q.expires_at > {now} AND q.id <> COALESCE(e.wait, '') AND (LENGTH(UNHEX(:name)) = 0 OR q.name = UNHEX(:name)) AND LEFT(q.name, LENGTH(UNHEX(:prefix))) = UNHEX(:prefix)
   AND q.name >= UNHEX(:from) AND q.name < CONCAT(UNHEX(:from), X'FF') AND (NOT :holds OR q.holding <> '')
 ORDER BY q.name, q.behind, q.ticket, q.id LIMIT :limit

-- name: queue.dead
SELECT process, id FROM sqllock_queue WHERE expires_at < {now} - 60000000 AND {fit} LIMIT 1000

-- name: queue.first
-- If none is known to wait, it may be one that could not say so in time.
SELECT DISTINCT q.process
  FROM JSON_TABLE(CONVERT(UNHEX(:calls) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (name VARCHAR(255) CHARACTER SET utf8mb4 PATH _utf8mb4'$.name')) a
  JOIN sqllock_queue q ON q.id = (
    SELECT o.id FROM sqllock_queue o LEFT JOIN sqllock_leases e ON e.name = o.name
     WHERE o.name = CONVERT(a.name USING binary) AND NOT o.behind AND o.id <> COALESCE(e.wait, '')
     ORDER BY o.expires_at <= {now}, o.ticket, o.id LIMIT 1
  )

-- name: queue.call
-- Interrupts the sleep of the session that has the named lock, which databases/mysql listens with. The server finds it, so
-- that no id is ever out of date, or another server's or a proxy's. KILL takes no parameter.
KILL QUERY IS_USED_LOCK(UNHEX('%x'))


-- Many grants at a time

-- name: grant.create-all
INSERT INTO sqllock_locks (name, acquired_at) SELECT a.name, {now} FROM {owners} ORDER BY a.name
    ON DUPLICATE KEY UPDATE name = sqllock_locks.name

-- name: grant.create-all-leases
INSERT INTO sqllock_leases (name) SELECT a.name FROM {owners} ORDER BY a.name
    ON DUPLICATE KEY UPDATE name = sqllock_leases.name

-- name: grant.ready-all
UPDATE (
    SELECT l.name FROM {owners} STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
     WHERE l.token = 0
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) made
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = made.name
  LEFT JOIN sqllock_floor f ON true
   SET l.token = GREATEST(1, COALESCE(f.token, 0))

-- let take-all = l.token = IF(free.before_owner = free.owner, l.token, GREATEST(l.token + COALESCE(free.tokens, :tokens), {clock})), l.owner = free.owner,
--        l.lock_delay_us = COALESCE(free.delay, :delay)
-- let take-rest = l.host = COALESCE(free.host, UNHEX(:host)),
--        l.pid = COALESCE(free.pid, :pid), l.label = COALESCE(free.label, UNHEX(:label)), l.metadata = COALESCE(free.metadata, UNHEX(:metadata)), l.strategy = UNHEX(:strategy),
--        e.ended = '', e.owner = free.owner, e.wait = COALESCE(free.wait, UNHEX(:wait)),
--        e.waiting = IF(e.waiting = COALESCE(free.line, :line) AND e.waiting < {clock} - 5000000, 0, e.waiting),
--        e.expires_at = GREATEST(IF(free.before_owner = free.owner, e.expires_at, 0), {clock} + COALESCE(free.lease, :lease))

-- name: grant.acquire-all
UPDATE (
    SELECT l.name, e.owner AS before_owner, a.owner, a.lease, a.delay, a.host, a.pid, a.label, a.metadata, a.tokens, a.line, a.wait FROM {wanted}
    STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
     WHERE l.token <> 0 AND {here-now} AND {granting}
       AND (e.expires_at + l.lock_delay_us <= {clock} AND (e.waiting = 0 OR COALESCE(a.first, :first)) OR e.owner = a.owner)
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = free.name
   SET {take-all}, l.acquired_at = {clock}, {take-rest}

-- name: grant.state-all
SELECT l.name, e.owner, l.token, e.ended, e.expires_at - {now}, l.lock_delay_us, l.host, l.pid, l.label, l.metadata, e.waiting
  FROM {owners} STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name

-- The leases of the calls' owners that nobody has locked, to be updated.
-- let ours = (
--     SELECT e.name FROM {owners} STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
--      WHERE e.owner = a.owner AND {here}
--      LIMIT 1000 FOR UPDATE SKIP LOCKED
-- ) ours
-- STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = ours.name

-- name: grant.renew-all
-- The insert id is the clock that it renewed by.
UPDATE (
    SELECT e.name FROM {owners} STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner AND {here} AND {renewable}
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = ours.name
   SET e.expires_at = GREATEST(e.expires_at, LAST_INSERT_ID({now}) + :lease)

-- name: grant.release-all
-- name: grant.release-all quietly
UPDATE {ours}
   SET e.owner = '', e.expires_at = IF(e.waiting <> 0, 0 * LAST_INSERT_ID(1), 0)

-- name: grant.leases-all
SELECT e.owner, e.expires_at FROM {owners}
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner


-- Strategy insert. The record comes first: a crash after it leaves a name that is held until its lease ends. Nothing is read
-- from the number of rows that insert.insert changed, which clientFoundRows changes, but that it was not zero.

-- name: insert.look
SELECT COALESCE(i.owner, ''), e.owner, l.token, e.ended, e.expires_at - {now}, l.lock_delay_us,
       l.host, l.pid, l.label, l.metadata, e.waiting
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name LEFT JOIN sqllock_inserts i ON i.name = l.name
 WHERE l.name = UNHEX(:name) AND {fit}

-- name: insert.clear
DELETE i FROM (
    SELECT i.name FROM sqllock_locks l STRAIGHT_JOIN sqllock_leases e ON e.name = l.name STRAIGHT_JOIN sqllock_inserts i ON i.name = l.name
     WHERE l.name = UNHEX(:name) AND (e.expires_at + l.lock_delay_us <= {now} OR e.owner <> i.owner)
     LIMIT 1 FOR UPDATE SKIP LOCKED
) gone
STRAIGHT_JOIN sqllock_inserts i ON i.name = gone.name

-- name: insert.insert
INSERT INTO sqllock_inserts (name, owner)
SELECT ours.name, ours.owner
  FROM (SELECT name, owner FROM sqllock_leases WHERE name = UNHEX(:name) AND owner = UNHEX(:owner) LIMIT 1 FOR UPDATE SKIP LOCKED) ours
    ON DUPLICATE KEY UPDATE owner = ours.owner

-- name: insert.look-all
SELECT l.name, COALESCE(i.owner, ''), e.owner, l.token, e.ended, e.expires_at - {now}, l.lock_delay_us,
       l.host, l.pid, l.label, l.metadata, e.waiting
  FROM {owners} STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
  LEFT JOIN sqllock_inserts i FORCE INDEX (PRIMARY) ON i.name = l.name

-- name: insert.insert-all
-- Of what is left over none is deleted before: it is replaced when the row is made. The rows are made in the order of their
-- names.
INSERT INTO sqllock_inserts (name, owner)
SELECT ours.name, ours.owner FROM (
    SELECT e.name, e.owner FROM {owners} STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours ORDER BY ours.name
    ON DUPLICATE KEY UPDATE owner = ours.owner

-- name: insert.gone-all
DELETE i FROM (
    SELECT i.name FROM {owners} STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name AND e.owner = a.owner
    STRAIGHT_JOIN sqllock_inserts i FORCE INDEX (PRIMARY) ON i.name = e.name
     WHERE i.owner = a.owner
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) gone
STRAIGHT_JOIN sqllock_inserts i FORCE INDEX (PRIMARY) ON i.name = gone.name


-- Strategy forupdate

-- name: forupdate.exists
SELECT 1 FROM sqllock_mutexes WHERE name = UNHEX(:name)

-- name: forupdate.create
INSERT INTO sqllock_mutexes (name) VALUES (UNHEX(:name)) ON DUPLICATE KEY UPDATE name = sqllock_mutexes.name

-- name: forupdate.isolate
-- For the next transaction alone. Under REPEATABLE READ it would lock the gap of a name that has no row, against the making
-- of rows beside it (https://dev.mysql.com/doc/refman/9.7/en/innodb-locks-set.html).
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: forupdate.begin
START TRANSACTION

-- name: forupdate.renew
-- name: forupdate.renew begin
-- wait_timeout is in whole seconds. What it was before is kept once: a renewal finds the variable set.
--
-- The row lock is the transaction's: a deadlock or an implicit commit would end it and not the session. Nothing else runs
-- here, so the session is what can go.
SET @sqllock_wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@SESSION.wait_timeout) AS UNSIGNED), SESSION wait_timeout = :limit

-- name: forupdate.lock
-- The named lock marks the session with its owner, for the reaper: connection ids start again with the server.
SELECT UNHEX(:session) FROM sqllock_mutexes WHERE name = UNHEX(:name) AND {here} AND GET_LOCK(UNHEX(:session), 0) IS NOT NULL
   FOR UPDATE SKIP LOCKED

-- name: forupdate.lock-shared
-- MySQL's form, and MariaDB's, which takes what is for MySQL from 5.7 on for a comment
-- (https://mariadb.com/docs/server/reference/sql-statements/comment-syntax).
SELECT UNHEX(:session) FROM sqllock_mutexes WHERE name = UNHEX(:name) AND {here} AND GET_LOCK(UNHEX(:session), 0) IS NOT NULL
   /*!80000 FOR SHARE SKIP LOCKED */ /*M!100600 LOCK IN SHARE MODE SKIP LOCKED */

-- name: forupdate.release
ROLLBACK

-- name: forupdate.unmark
DO RELEASE_LOCK(UNHEX(:session))

-- name: forupdate.reset
SET SESSION wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@GLOBAL.wait_timeout) AS UNSIGNED), @sqllock_wait_timeout = NULL

-- name: forupdate.sessions
-- A phase has no session of its own, and is longer than the name of a lock may be (error 4163).
SELECT IS_USED_LOCK(CONCAT('sqllock:', CONVERT(e.owner USING utf8mb4)))
  FROM sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
 WHERE {fit} AND l.strategy = 'forupdate' AND e.owner <> ''
   AND e.expires_at <= {now}
   AND IF(LENGTH(e.owner) > 56, NULL, IS_USED_LOCK(CONCAT('sqllock:', CONVERT(e.owner USING utf8mb4)))) IS NOT NULL
 UNION
SELECT IS_USED_LOCK(CONCAT('sqllock:', CONVERT(s.owner USING utf8mb4))) FROM sqllock_shares s
 WHERE {fit} AND s.expires_at <= {now} AND IS_USED_LOCK(CONCAT('sqllock:', CONVERT(s.owner USING utf8mb4))) IS NOT NULL

-- name: forupdate.session
SELECT id FROM (SELECT IS_USED_LOCK(UNHEX(:session)) AS id) used WHERE id IS NOT NULL

-- name: forupdate.kill
-- KILL takes no parameter: MySQL binds them in DML only (error 6413, seen on 9.7).
KILL %d


-- Strategy advisory
--
-- There are statements that take a named lock and grant the name in one, and end the grant and free the named lock in one.
-- Both servers ask GET_LOCK and RELEASE_LOCK once for each row that has passed what stands before them in an IF, when they
-- have locked it. In an AND they would ask them sooner, as soon as they had read the columns in their parameters: MariaDB
-- 11.8 took the named lock of a row that it then skipped.

-- name: advisory.identity
SELECT CAST(CONNECTION_ID() AS CHAR)

-- name: advisory.namespace
-- Named locks are the server's. The name's bytes, and not what they become in the character set of the connection.
SELECT COALESCE(CAST(DATABASE() AS BINARY), ''), CONNECTION_ID() LIMIT 1

-- name: advisory.limit
SET @sqllock_wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@SESSION.wait_timeout) AS UNSIGNED), SESSION wait_timeout = :limit

-- name: advisory.reset
SET SESSION wait_timeout = CAST(COALESCE(@sqllock_wait_timeout, @@GLOBAL.wait_timeout) AS UNSIGNED), @sqllock_wait_timeout = NULL

-- Frees a named lock, and is 1 if the session had it and has it no more. A session has a named lock as often as it was
-- given it. Only 1 says that it had it: 0 is somebody else's, NULL nobody's.
-- let unlocked = CASE RELEASE_LOCK(UNHEX(:key)) WHEN 1 THEN COALESCE(IS_USED_LOCK(UNHEX(:key)), 0) <> CONNECTION_ID() ELSE 0 END

-- name: advisory.release unlock
SELECT {unlocked}

-- name: advisory.acquire
-- name: advisory.acquire from line
-- {now} and not {clock}, here and below: what is the same for the whole statement MySQL 9.7 evaluates as it plans, too, and so takes
-- the named lock three times.
UPDATE (
    SELECT l.name, e.owner = UNHEX(:owner) AS mine, {now} AS moment FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(:name) AND {here-now} AND {granting} AND IF(l.token <> 0
       AND (e.owner = UNHEX(:owner) OR (e.waiting = 0 OR :first) AND (e.expires_at + l.lock_delay_us <= {now}
            {instead})) AND NOT @@global.read_only, GET_LOCK(UNHEX(:key), 0), 0) = 1
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
{acquire}

-- name: advisory.acquire-all
-- All that it grants have the token that it tells, the clock: what would have another one, because that is ahead of the
-- clock or the owner has the name already, is granted alone.
UPDATE (
    SELECT l.name, e.owner AS before_owner, a.owner, a.lease, a.delay, a.host, a.pid, a.label, a.metadata, a.tokens, a.line, a.wait FROM {wanted-keys}
    STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
    STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
     WHERE {here-now} AND {granting} AND IF(l.token <> 0 AND l.token + COALESCE(a.tokens, :tokens) <= {now} AND e.owner <> a.owner AND (e.waiting = 0 OR COALESCE(a.first, :first))
              AND (e.expires_at + l.lock_delay_us <= {now} OR l.strategy = UNHEX(:session)) AND NOT @@global.read_only, GET_LOCK(a.lock_key, 0), 0) = 1
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = free.name
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = free.name
   SET {take-all}, l.acquired_at = LAST_INSERT_ID({now}), {take-rest}

-- name: advisory.state
-- Where nothing was granted: not every account is kept from writing by a server that is read-only, and a session may have
-- the named lock of a row that is free.
SELECT @@global.read_only, IS_USED_LOCK(UNHEX(:key)) IS NOT NULL, e.owner, l.token, e.ended, e.expires_at - {now}, l.lock_delay_us, l.host, l.pid, l.label, l.metadata, e.waiting
  FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name WHERE l.name = UNHEX(:name)

-- name: advisory.release
-- The insert id is zero if there was no such grant. Otherwise it is one more than what it says in two bits: whether others
-- wait, and whether the session had the named lock.
UPDATE sqllock_leases
   SET owner = '', expires_at = 0 * LAST_INSERT_ID(1 + (waiting <> 0) + 2 * ({unlocked}))
 WHERE name = UNHEX(:name) AND owner = UNHEX(:owner)

-- name: advisory.release-all
-- As that of many leases, of those only whose named lock it has freed.
UPDATE (
    SELECT e.name FROM {keys} STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE IF(e.owner = a.owner, CASE RELEASE_LOCK(a.lock_key) WHEN 1 THEN COALESCE(IS_USED_LOCK(a.lock_key), 0) <> CONNECTION_ID() ELSE 0 END, 0)
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours
STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = ours.name
   SET e.owner = '', e.expires_at = IF(e.waiting <> 0, 0 * LAST_INSERT_ID(1), 0)

-- name: advisory.look
-- What became of each, if not all were done.
SELECT a.owner, COALESCE(IS_USED_LOCK(a.lock_key), 0) = CONNECTION_ID(), COALESCE(IF(e.owner = a.owner, l.token, 0), 0), @@global.read_only
  FROM {keys}
  LEFT JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name
  LEFT JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name

-- name: advisory.release-left
SELECT CASE RELEASE_LOCK(k.lock_key) WHEN 1 THEN COALESCE(IS_USED_LOCK(k.lock_key), 0) <> CONNECTION_ID() ELSE 1 END
  FROM JSON_TABLE(CONVERT(UNHEX(:keys) USING utf8mb4), _utf8mb4'$[*]' COLUMNS (lock_key VARCHAR(64) CHARACTER SET utf8mb4 PATH _utf8mb4'$')) k

-- name: advisory.check
SELECT 1

-- name: advisory.session
SELECT id FROM (SELECT IS_USED_LOCK(UNHEX(:key)) AS id) used WHERE id IS NOT NULL

-- name: advisory.kill
KILL %d


-- What MySQL and MariaDB do without

-- insert takes the record as all do, and deletes its row before.
-- none: insert.acquire, insert.acquire from line, grant.release insert, grant.release telling insert, grant.release-later insert, grant.release-tx insert, share.end insert, insert.acquire-all, insert.release-all, insert.release-all quietly
-- none: insert.begin, insert.commit, insert.rollback

-- Transactions of more than one statement begin with grant.remove-begin.
-- none: group.begin

-- Commits of a session wait for the disk as those of all do.
-- none: recovery.run

-- Waiters are called, and not notified.
-- none: notes.announce, queue.tell, queue.tell-all

-- A statement about several waiters does for several what TiDB's do one by one.
-- none: queue.enqueue-each, queue.wait-each, queue.taken-each, queue.stand keeping

-- Sent at the beginning.
-- none: forupdate.renew locked

-- GET_LOCK knows no readers.
-- none: advisory.try-shared, advisory.release-shared
