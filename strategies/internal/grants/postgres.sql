-- What is sent to PostgreSQL. sql.go says how this file is read.
--
-- Nothing may be looked for outside of pg_catalog: who can create an operator or a function in a schema of the search_path
-- would have it called, by whoever uses locks. One whose argument types match better than those in pg_catalog is taken
-- from there (https://www.postgresql.org/docs/current/typeconv-oper.html). So functions and views have their schema, and
-- both sides of an operator the very types that pg_catalog has it for: bigint * interval is not there, float * interval
-- is. float, bigint, boolean, numeric and interval are words of the grammar; text is a name, and has its schema. unnest of
-- several arrays is grammar, too, and of pg_catalog, but only without the schema.

-- The clock at the moment of decision: now() and statement_timestamp() are older than the statement's work by whatever it
-- waited; clock_timestamp() is not
-- (https://www.postgresql.org/docs/current/functions-datetime.html#FUNCTIONS-DATETIME-CURRENT).
-- let now = pg_catalog.clock_timestamp()
-- let micros = (pg_catalog.date_part('epoch', {now}) * 1000000::float)::bigint

-- A condition, always true, that has a statement which only reads sent to the primary where a proxy balances load.
-- pgpool-II goes by the text of a statement: without a volatile function it is sent to any server, and a standby shows
-- what was so a moment ago (https://www.pgpool.net/docs/latest/en/html/runtime-config-load-balancing.html).
-- let at-primary = {now} IS NOT NULL

-- A condition, always true, that lets its statement wait for a lock for a moment only: an INSERT waits for a transaction
-- that has inserted the same name, and has not ended.
-- let briefly = pg_catalog.set_config('lock_timeout', '100ms', true) <> ''

-- A condition, always true, that lets the commit of its statement not wait for the disk nor for a standby. It holds for
-- the statement's own transaction (https://www.postgresql.org/docs/current/wal-async-commit.html). What comes later in the
-- log and is durable makes this durable, too: no later grant is there without the release.
-- let async = pg_catalog.set_config('synchronous_commit', CASE WHEN false::boolean THEN pg_catalog.current_setting('synchronous_commit') ELSE 'off' END, true) <> ''

-- The same, unless the release is to be durable.
-- let async-release = pg_catalog.set_config('synchronous_commit', CASE WHEN :durable::boolean THEN pg_catalog.current_setting('synchronous_commit') ELSE 'off' END, true) <> ''

-- True in a session that finds the tables which sqllock found first. A program may have set it to look elsewhere since (SET
-- search_path), where there are tables of ours, too, whose locks exclude nobody. Then it is an error, of a text that is no
-- number. The table is looked up when the statement is planned, which a change of the search_path repeats. In another
-- encoding than at first (SET client_encoding) a name that is not of ASCII characters alone would be another one. Whoever
-- only looks at a standby has found none yet.
-- let here = CASE WHEN pg_catalog.split_part(:where, ',', 1) IN (''::pg_catalog.text, 'sqllock_locks'::pg_catalog.regclass::pg_catalog.oid::bigint::pg_catalog.text) AND pg_catalog.current_setting('client_encoding') = 'UTF8'::pg_catalog.text THEN '1'::pg_catalog.text ELSE 'sqllock: other tables'::pg_catalog.text END::integer = 1::integer

-- The same of the tables of readers, and of what forupdate locks.
-- let here-shares = CASE WHEN 'sqllock_shares'::pg_catalog.regclass::pg_catalog.oid::bigint::pg_catalog.text = pg_catalog.split_part(:where, ',', 2) THEN '1'::pg_catalog.text ELSE 'sqllock: other tables'::pg_catalog.text END::integer = 1::integer
-- let here-mutexes = CASE WHEN 'sqllock_mutexes'::pg_catalog.regclass::pg_catalog.oid::bigint::pg_catalog.text = pg_catalog.split_part(:where, ',', 3) THEN '1'::pg_catalog.text ELSE 'sqllock: other tables'::pg_catalog.text END::integer = 1::integer

-- When others may have the name.
-- let free-at = l.expires_at + l.lock_delay_us::float * interval '1 microsecond'

-- The name in whose line those wait who wait for a slot (SlotName of package strategies), and the number of the slot.
-- let line = pg_catalog.split_part(l.name, pg_catalog.chr(31), 1)
-- let slot = coalesce(nullif(pg_catalog.split_part(l.name, pg_catalog.chr(31), 2), ''::pg_catalog.text), '0'::pg_catalog.text)::bigint

-- True of a row that readers have, and of one whose readers all have left, or died.
-- let read = pg_catalog.starts_with(l.owner, 'shared-')
-- let left = {read} AND s.owner IS NULL

-- The first token of a row, which no grant has: at least that of every row of its name that was removed.
-- let floor = greatest(1::bigint, (SELECT f.token FROM sqllock_floor f WHERE f.id = 1::bigint))

-- Which server this is. A standby that was promoted is on a new timeline, and so is a copy that was restored; tables that were
-- restored from a dump have another number. Where the timeline cannot be read (Aurora), or does not matter, there is a constant
-- in its place. What changes is what is asked of the log, so that each statement finds it out again.
-- let server = pg_catalog.concat(CASE WHEN :cluster::pg_catalog.text = '' THEN pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)
--     ELSE :cluster::pg_catalog.text END, ' '::pg_catalog.text, 'sqllock_locks'::pg_catalog.regclass::pg_catalog.oid::bigint)

-- Since when the server has not crashed, if there are grants with asynchronous commit. The table is unlogged: a crash empties it, and
-- it is empty on a standby that is promoted (https://www.postgresql.org/docs/current/sql-createtable.html#SQL-CREATETABLE-UNLOGGED).
-- let run = coalesce((SELECT r.run FROM sqllock_run r WHERE r.id = 1::bigint), ''::pg_catalog.text)

-- True while a crash empties it.
-- let unlogged = EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.oid = 'sqllock_run'::pg_catalog.regclass::pg_catalog.oid AND c.relpersistence::pg_catalog.text = 'u'::pg_catalog.text)

-- True of the row while no grant is lost that has not ended; and if it allows what is asked for. What commits asynchronously needs a
-- run that is noted, so that a crash shows. concat, which is not evaluated when a statement is planned, has the plan be as good
-- with a value as without one. Otherwise PostgreSQL would make a new plan each time, which takes half as long as a grant
-- (https://www.postgresql.org/docs/current/sql-prepare.html#SQL-PREPARE-NOTES).
-- let whole = (v.server = {server} OR v.lossless) AND v.run = {run}
-- let allowed = v.allowed_us >= :promise::bigint AND (pg_catalog.concat(:asynchronous::boolean) = 'f'::pg_catalog.text OR v.run <> '' AND v.run = {run} AND {unlogged})

-- True of the row before it is noted that a server has crashed which had grants that commit asynchronously, or that another one has
-- become the primary.
-- let crashed = v.run <> '' AND v.run <> {run}
-- let moved = (v.server <> '' AND v.server <> {server} AND ({crashed} OR NOT v.lossless))

-- True unless a server that has become the primary, or has crashed, may lack grants from before, or a grant would last longer than has
-- been noted: see recovery.go.
-- let granting = EXISTS (SELECT 1 FROM sqllock_recovery v WHERE v.id = 1::bigint AND {whole} AND v.paused_until <= {now} AND {allowed})

-- True of a lease that may be renewed. One that has expired is not renewed in a recovery pause: what has ended it may be lost.
-- let renewable = EXISTS (SELECT 1 FROM sqllock_recovery v WHERE v.id = 1::bigint AND {allowed}
--                            AND (expires_at > {now} OR {whole} AND v.paused_until <= {now}))

-- Conditions, always true, that let the commit of a lease not wait for the disk, if that is asked for: of one that is renewed; of one
-- that is granted, unless its token is ahead of the clock, and so not less than the next one's by itself; and of several.
-- let off = pg_catalog.set_config('synchronous_commit', 'off', true) <> ''
-- let commit-lease = CASE WHEN :asynchronous::boolean THEN {off} ELSE true END
-- let commit = CASE WHEN :asynchronous::boolean AND l.token + :tokens::bigint <= {micros} THEN {off} ELSE true END
-- let commit-all = (SELECT CASE WHEN :asynchronous::boolean AND pg_catalog.max(f.next) <= {micros} THEN {off} ELSE true END FROM free f)

-- True if somebody waits. It notifies the first in line: that it is its turn, and what Request.Line says; of a slot the
-- first that knows as many. It sees the line as it was when the statement began. Who has come since, while the name's row
-- was locked, is not in it; if nobody is, all are told to look. A notification takes a lock of the whole server at the
-- commit, so there is none if nobody waits.
--
-- The server may refuse it: its queue is full, or the user may not notify. So only releases have it, which are sent once
-- more without it then. Whatever else there is to tell is told by a statement of its own.
-- let tell = CASE WHEN l.waiting <> 0 THEN coalesce((
--     SELECT pg_catalog.pg_notify('sqllock_'::pg_catalog.text || f.process,
--                                 f.line::pg_catalog.text || ' '::pg_catalog.text || f.id || ' '::pg_catalog.text || {line}) IS NOT NULL
--       FROM (SELECT t.process, t.id, t.ticket, CASE WHEN pg_catalog.count(*) OVER () > 1 THEN 0::bigint
--                    ELSE coalesce((SELECT s.waiting FROM sqllock_locks s WHERE s.name = {line}), 0::bigint) END AS line
--               FROM (SELECT q.process, q.ticket, q.id FROM sqllock_queue q
--                      WHERE q.name = {line} AND q.slots > {slot} AND NOT q.behind AND q.expires_at > {now}
--                      ORDER BY q.ticket, q.id LIMIT 2) t
--              ORDER BY t.ticket, t.id LIMIT 1) f
-- ), pg_catalog.pg_notify('sqllock_released', l.name) IS NOT NULL) ELSE false END


-- Acquire

-- FOR UPDATE, and not the weaker lock that an UPDATE of these columns takes by itself: it is what a guard's FOR KEY SHARE
-- stops. SKIP LOCKED: a try waits neither for a guard nor for another try. A row that changed since the statement began
-- is judged again as it is now, with a fresh clock
-- (https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED).
--
-- owner = :owner makes an attempt repeatable whose answer was lost, and one that arrives late harmless: the token stays,
-- and the lease is not shortened.
--
-- strategy = :session is for locks that a session holds: whoever has the session's lock need not wait for the lease of one
-- whose session has ended, see Replaces. It matches nothing for cas and insert.
-- let free = sqllock_locks l
--      WHERE l.name = :name AND l.token <> 0 AND {here}
--        AND ({free-at} <= {now} OR l.owner = :owner
--             OR l.strategy = :session AND (l.token = :seen::bigint OR :seen::bigint < 0))
--        AND (l.waiting = 0 OR :first::boolean OR l.owner = :owner) AND {granting} AND {commit}
--        FOR UPDATE SKIP LOCKED

-- let take = token = CASE WHEN l.owner = :owner THEN l.token ELSE greatest(l.token + :tokens::bigint, {micros}) END,
--        owner = :owner, expires_at = greatest(CASE WHEN l.owner = :owner THEN l.expires_at END,
--                                              {now} + :lease::float * interval '1 microsecond'),
--        lock_delay_us = :delay, acquired_at = {now}, host = :host, pid = :pid, label = :label, metadata = :metadata, strategy = :strategy, ended = '',
--        waiting = CASE WHEN l.waiting = :line::bigint THEN 0 ELSE l.waiting END

-- let acquire = UPDATE sqllock_locks l
--    SET {take}
--   FROM free
--  WHERE l.name = free.name

-- Takes who has been granted the name out of its line. Who is in no line does not pay for it.
-- let leave = queue AS (
--     DELETE FROM sqllock_queue q USING free WHERE q.process = :process AND q.id = :wait
-- )

-- name: cas.acquire
-- name: grant.acquire
WITH free AS (
    SELECT l.name FROM {free}
)
{acquire}
RETURNING l.token

-- name: cas.acquire from line
-- name: grant.acquire from line
WITH free AS (
    SELECT l.name FROM {free}
), {leave}
{acquire}
RETURNING l.token

-- While a transaction has the lock: nothing is granted if that has ended. What a crash of the server forgets of the grant
-- is over then, and the next token is larger, because tokens follow the clock; only one that is ahead of the clock has to
-- be there.
-- let held = pg_catalog.pg_xact_status(:held::pg_catalog.text::pg_catalog.xid8) = 'in progress'
--    AND pg_catalog.set_config('synchronous_commit', CASE WHEN (free.token + :tokens::bigint > {micros})::boolean THEN pg_catalog.current_setting('synchronous_commit') ELSE 'off' END, true) <> ''

-- name: grant.acquire held
WITH free AS (
    SELECT l.name, l.token FROM {free}
)
{acquire} AND {held}
RETURNING l.token

-- name: grant.acquire held from line
WITH free AS (
    SELECT l.name, l.token FROM {free}
), {leave}
{acquire} AND {held}
RETURNING l.token

-- Locks the name's record as cas does, and what a dead holder left in sqllock_inserts. Each part runs after the one that
-- it reads from, so that the token is drawn last, while both rows are held.
--
-- It waits for nobody: what is left over is skipped if somebody has it locked, and then the row is there for the INSERT
-- not to be tried, as it would wait for a transaction that deletes it. For one that makes it, and is none of sqllock's, it
-- waits briefly.
-- let free-of-row = WITH free AS (
--     SELECT l.name FROM {free}
-- )

-- Nothing is deleted in "releasable". Who may not delete could acquire, and not release: PostgreSQL refuses that at once.
-- let releasable = releasable AS (
--     DELETE FROM sqllock_inserts WHERE false
-- )

-- let row = left_over AS (
--     SELECT i.name FROM free JOIN sqllock_inserts i ON i.name = free.name FOR UPDATE OF i SKIP LOCKED
-- ), replaced AS (
--     UPDATE sqllock_inserts i SET owner = :owner FROM left_over WHERE i.name = left_over.name RETURNING i.name
-- ), added AS (
--     INSERT INTO sqllock_inserts (name, owner)
--     SELECT free.name, :owner FROM free WHERE {briefly} AND NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = free.name)
--         ON CONFLICT DO NOTHING
--     RETURNING name
-- ), present AS MATERIALIZED (
--     SELECT name FROM replaced UNION ALL SELECT name FROM added
-- ), {releasable}

-- let acquire-with-row = UPDATE sqllock_locks l
--    SET {take}
--   FROM present
--  WHERE l.name = present.name
-- RETURNING l.token

-- name: insert.acquire
{free-of-row}, {row}
{acquire-with-row}

-- name: insert.acquire from line
{free-of-row}, {leave}, {row}
{acquire-with-row}

-- name: grant.create
INSERT INTO sqllock_locks (name, acquired_at) SELECT :name::pg_catalog.text, {now}
 WHERE {briefly} AND {async} ON CONFLICT DO NOTHING

-- name: grant.ready
-- A snapshot from when the row is there is from after each removal that the INSERT may have waited for.
UPDATE sqllock_locks SET token = {floor}
 WHERE name = :name AND token = 0 AND {briefly} AND {async}

-- name: grant.where
-- Which tables are found, if any, and if names are the same there; whether those that were found before are still there; as whom
-- the session acts; and whether it finds some of the tables elsewhere than others, as a temporary table in front of one.
WITH found AS (
    SELECT pg_catalog.to_regclass('sqllock_locks')::pg_catalog.oid AS locks, pg_catalog.to_regclass('sqllock_shares')::pg_catalog.oid AS shares,
           pg_catalog.to_regclass('sqllock_mutexes')::pg_catalog.oid AS mutexes, pg_catalog.to_regclass('sqllock_inserts')::pg_catalog.oid AS inserts,
           pg_catalog.to_regclass('sqllock_queue')::pg_catalog.oid AS queue, pg_catalog.to_regclass('sqllock_floor')::pg_catalog.oid AS floor
)
SELECT CASE WHEN pg_catalog.current_setting('client_encoding') = 'UTF8'::pg_catalog.text THEN pg_catalog.concat_ws(',', f.locks::bigint, f.shares::bigint, f.mutexes::bigint) ELSE ''::pg_catalog.text END,
       (SELECT pg_catalog.count(*) = 3 FROM pg_catalog.pg_class c
         WHERE c.relname IN ('sqllock_locks', 'sqllock_shares', 'sqllock_mutexes')
           AND c.oid::bigint::pg_catalog.text = ANY (pg_catalog.string_to_array(:where, ','))),
       current_user::pg_catalog.text,
       (SELECT pg_catalog.count(DISTINCT c.relnamespace) > 1 FROM pg_catalog.pg_class c
         WHERE c.oid IN (f.locks, f.shares, f.mutexes, f.inserts, f.queue, f.floor))
  FROM found f
 WHERE {at-primary}

-- name: grant.protocol
SELECT p.protocol FROM sqllock_protocol p WHERE {at-primary}

-- let state = owner, token, ended, (pg_catalog.date_part('epoch', expires_at - {now}) * 1000000::float)::bigint,
--        lock_delay_us, host, pid, label, metadata, waiting
--   FROM sqllock_locks

-- name: grant.state
SELECT {state} WHERE name = :name


-- Renew and release

-- name: grant.renew
-- greatest: a renewal that was held up on its way never shortens what Extend gave meanwhile.
UPDATE sqllock_locks
   SET expires_at = greatest(expires_at, {now} + :lease::float * interval '1 microsecond')
 WHERE name = :name AND owner = :owner AND {here} AND {renewable} AND {commit-lease}

-- name: grant.raise
-- FOR NO KEY UPDATE, as a renewal's lock: a guard is not in the way, and does not change.
WITH held AS (
    SELECT name FROM sqllock_locks WHERE name = :name AND owner = :owner AND {here} FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l SET token = greatest(l.token, :token::bigint) FROM held WHERE l.name = held.name
RETURNING l.token

-- name: grant.pass
-- It is locked as by an acquisition, so that a guard of who had it is in the way. acquired_at changes for the sake of snapshots that
-- are older. Who has it already is answered as at first.
WITH held AS (
    SELECT l.name FROM sqllock_locks l
     WHERE l.name = :name AND l.token = :token AND (l.owner = :from OR l.owner = :owner) AND l.expires_at > {now} AND {here} AND {granting}
       FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l
   SET expires_at = greatest(CASE WHEN l.owner = :owner THEN l.expires_at END, {now} + :lease::float * interval '1 microsecond'),
       owner = :owner, acquired_at = {now}, lock_delay_us = :delay, host = :host, pid = :pid, label = :label, metadata = :metadata, strategy = :strategy
  FROM held
 WHERE l.name = held.name
RETURNING l.token

-- name: insert.pass
UPDATE sqllock_inserts SET owner = :owner WHERE name = :name AND owner = :from AND {briefly}

-- let release = UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
--  WHERE name = :name AND owner = :owner AND {here}

-- name: grant.release
{release} AND {async-release}
RETURNING l.waiting <> 0

-- name: grant.release telling
{release} AND {async-release}
RETURNING {tell}

-- name: grant.release-tx
-- It tells nobody: a transaction that has notified cannot be prepared, and does not commit if the queue is full.
{release}

-- let release-later = UPDATE sqllock_locks l
--    SET owner = '', expires_at = acquired_at + :min_hold::float * interval '1 microsecond', lock_delay_us = 0
--  WHERE name = :name AND owner = :owner AND {here}

-- name: grant.release-later
{release-later}

-- The row of insert. It is part of the same statement, and runs after the record was freed, because nothing reads from it
-- (https://www.postgresql.org/docs/current/queries-with.html#QUERIES-WITH-MODIFYING). A row is told by its owner, whom no
-- later row of the name has.
-- let gone = WITH gone AS (DELETE FROM sqllock_inserts WHERE name = :name AND owner = :owner)

-- name: grant.release insert
{gone}
{release} AND {async-release}
RETURNING l.waiting <> 0

-- name: grant.release telling insert
{gone}
{release} AND {async-release}
RETURNING {tell}

-- name: grant.release-tx insert
{gone}
{release}

-- name: grant.release-later insert
{gone}
{release-later}

-- name: grant.force
-- Of whatever strategy, so that it takes along the row of insert.
{gone}
UPDATE sqllock_locks l
   SET owner = '', expires_at = 'epoch', lock_delay_us = 0, ended = CASE WHEN owner = '' THEN ended ELSE :ended END
 WHERE name = :name AND owner = :owner AND token = :token


-- Recovery

-- name: recovery.cluster
-- An error where there is no timeline to read.
SELECT ''::pg_catalog.text, pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) WHERE {at-primary}

-- name: recovery.run
-- Nobody else is told of it, if the table is not unlogged any more.
INSERT INTO sqllock_run (id, run) SELECT 1::bigint, pg_catalog.gen_random_uuid()::pg_catalog.text
 WHERE {briefly} AND {unlogged}
    ON CONFLICT DO NOTHING

-- name: recovery.state
SELECT {whole}, {allowed},
       coalesce((pg_catalog.date_part('epoch', v.paused_until - {now}) * 1000000::float)::bigint, 0::bigint),
       v.server, {server}, v.previous, v.reason, v.lossless, v.run <> '', {crashed}, v.changes, v.longest_us, v.longest_by,
       pg_catalog.current_setting('synchronous_commit') = 'off'::pg_catalog.text
  FROM sqllock_recovery v WHERE v.id = 1::bigint AND {at-primary}

-- name: recovery.note
INSERT INTO sqllock_recovery AS v (id, server, run, allowed_us, allowed_by, longest_us, longest_by, lowered_at)
SELECT 1::bigint, {server}, {run}, :promise::bigint, :by::pg_catalog.text, :promise::bigint, :by::pg_catalog.text, {now} WHERE {briefly} AND {here}
    ON CONFLICT (id) DO UPDATE
   SET changes = CASE WHEN NOT {moved} THEN v.changes WHEN v.paused_until > {now} THEN v.changes + 1::bigint ELSE 1::bigint END,
       paused_until = CASE WHEN {moved} OR {crashed} THEN greatest(v.paused_until, {now} + v.longest_us::float * interval '1 microsecond') ELSE v.paused_until END,
       reason = CASE WHEN {moved} THEN :reason::pg_catalog.text WHEN {crashed} THEN 'the server has crashed, and grants are with asynchronous commit' ELSE v.reason END,
       crashed = {crashed} OR v.crashed AND v.paused_until > {now},
       previous = CASE WHEN v.server = {server} THEN v.previous ELSE v.server END,
       longest_by = CASE WHEN v.longest_us < :promise::bigint THEN :by::pg_catalog.text ELSE v.longest_by END,
       allowed_by = CASE WHEN v.allowed_us < :promise::bigint THEN :by::pg_catalog.text ELSE v.allowed_by END,
       longest_us = greatest(v.longest_us, :promise::bigint), allowed_us = greatest(v.allowed_us, :promise::bigint), server = {server}, run = {run}

-- name: recovery.lower
-- The longest promise is forgotten in two steps. From the first on nothing that long is granted without being noted again, and the
-- second comes when what was granted before is over.
UPDATE sqllock_recovery v SET allowed_us = 0, lowered_at = {now}
 WHERE v.id = 1::bigint AND v.lowered_at < {now} - v.longest_us::float * interval '1 microsecond' - interval '1 day' AND {briefly}

-- name: recovery.forget
UPDATE sqllock_recovery v SET longest_us = v.allowed_us, longest_by = v.allowed_by
 WHERE v.id = 1::bigint AND v.longest_us > v.allowed_us
   AND v.lowered_at < {now} - v.longest_us::float * interval '1 microsecond' - interval '5 minutes' AND {briefly}

-- name: recovery.end
UPDATE sqllock_recovery v SET paused_until = {now}, reason = :reason::pg_catalog.text, server = {server}, run = {run}
 WHERE v.id = 1::bigint AND (v.server <> {server} OR v.run <> {run} OR v.paused_until > {now}) AND {briefly}

-- name: recovery.lossless
-- It ends a pause after a fail-over alone. What else there is of a pause goes on, and its reason stays beside this one.
INSERT INTO sqllock_recovery AS v (id, lossless, reason, lowered_at)
SELECT 1::bigint, :lossless::boolean, :reason::pg_catalog.text, {now} WHERE {briefly}
    ON CONFLICT (id) DO UPDATE
   SET lossless = excluded.lossless,
       paused_until = CASE WHEN excluded.lossless AND v.run = '' AND NOT v.crashed THEN least(v.paused_until, {now}) ELSE v.paused_until END,
       reason = CASE WHEN v.paused_until > {now} AND NOT (excluded.lossless AND v.run = '' AND NOT v.crashed)
                     THEN pg_catalog.concat(v.reason, '; '::pg_catalog.text, excluded.reason) ELSE excluded.reason END


-- Guard

-- name: grant.guard
-- FOR KEY SHARE conflicts with the FOR UPDATE of the next acquisition and of the removal of idle rows, and with nothing
-- that a renewal or a release does (https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS).
SELECT token FROM sqllock_locks WHERE name = :name AND owner = :owner AND token = :token FOR KEY SHARE

-- name: grant.date
-- FOR UPDATE, as an acquisition: FOR KEY SHARE does not mind a weaker change that is newer than the snapshot.
WITH held AS (
    SELECT name FROM sqllock_locks WHERE name = :name AND owner = :owner AND token = :token FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l SET acquired_at = {now} FROM held WHERE l.name = held.name

-- name: grant.unguarded
-- As the next acquisition would lock it.
SELECT name FROM sqllock_locks WHERE name = :name FOR UPDATE SKIP LOCKED


-- Look

-- Holders, and each of the readers.
-- let holders = SELECT l.name, l.strategy, l.token, CASE WHEN {left} THEN '' ELSE coalesce(s.host, l.host) END,
--        CASE WHEN {left} THEN 0 ELSE coalesce(s.pid, l.pid) END, CASE WHEN {left} THEN '' ELSE coalesce(s.label, l.label) END,
--        CASE WHEN {left} THEN '' ELSE coalesce(s.metadata, l.metadata) END,
--        (pg_catalog.date_part('epoch', {now} - coalesce(s.acquired_at, l.acquired_at)) * 1000000::float)::bigint,
--        (pg_catalog.date_part('epoch', coalesce(s.expires_at, l.expires_at) - {now}) * 1000000::float)::bigint, l.lock_delay_us,
--        CASE WHEN {left} THEN '' ELSE coalesce(s.owner, l.owner) END, {read}
--   FROM sqllock_locks l
--   LEFT JOIN sqllock_shares s ON s.name = l.name AND s.phase = l.owner AND s.expires_at > {now}

-- name: grant.holders
{holders}
 WHERE {free-at} > {now} AND pg_catalog.starts_with(l.name, :prefix)
 ORDER BY l.name, s.acquired_at, s.owner LIMIT :limit

-- name: grant.slots
{holders}
 WHERE (l.name = :name OR l.name > :above AND l.name < :below) AND {free-at} > {now}
 ORDER BY l.name, s.acquired_at, s.owner LIMIT :limit


-- Reap

-- name: grant.expired
SELECT name, owner FROM sqllock_locks
 WHERE owner <> ''
   AND expires_at + lock_delay_us::float * interval '1 microsecond' <= {now} ORDER BY name LIMIT 1000

-- name: grant.end
-- The predicate again, on the row as it is when it is locked: one that was renewed meanwhile stays.
WITH dead AS (
    SELECT name FROM sqllock_locks
     WHERE name = :name AND owner <> ''
       AND expires_at + lock_delay_us::float * interval '1 microsecond' <= {now}
       FOR UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l SET owner = '', lock_delay_us = 0, ended = 'expired' FROM dead WHERE l.name = dead.name

-- These remove rows that nobody uses, and note the largest of their tokens. The rows are found by their places in the
-- table: by name all of the table was read once more. A row that somebody has locked is skipped. One that has changed
-- since the snapshot is at another place, where the DELETE does not see it.
--
-- A crash that undoes this undoes all that came later, too, so that it need not wait for the disk.
-- let idle = l.owner = '' AND l.expires_at <= {now} AND l.acquired_at < {now} - :age::float * interval '1 microsecond'
-- let unused = l.waiting <= {micros} - :age::bigint
--            AND NOT EXISTS (SELECT 1 FROM sqllock_queue q WHERE q.name = {line} AND q.expires_at > {now})
--            AND NOT EXISTS (SELECT 1 FROM sqllock_shares s WHERE s.name = l.name) AND {async}
-- let note-removed = inserts AS (
--     DELETE FROM sqllock_inserts WHERE ctid = ANY (ARRAY(
--         SELECT i.ctid FROM gone JOIN sqllock_inserts i ON i.name = gone.name FOR UPDATE OF i SKIP LOCKED))
-- ), mutexes AS (
--     DELETE FROM sqllock_mutexes WHERE ctid = ANY (ARRAY(
--         SELECT m.ctid FROM gone JOIN sqllock_mutexes m ON m.name = gone.name FOR UPDATE OF m SKIP LOCKED))
-- )
-- INSERT INTO sqllock_floor AS f (id, token) SELECT 1::bigint, pg_catalog.max(gone.token) FROM gone HAVING pg_catalog.count(*) > 0
--     ON CONFLICT (id) DO UPDATE SET token = greatest(f.token, excluded.token)
-- RETURNING (SELECT pg_catalog.count(*) FROM gone)

-- name: grant.idle
-- Those of which nothing is noted.
WITH gone AS (
    DELETE FROM sqllock_locks WHERE ctid = ANY (ARRAY(
        SELECT l.ctid FROM sqllock_locks l
         WHERE {idle}
           AND l.tick = 0 AND l.ended = '' AND {unused}
         LIMIT :limit::bigint
           FOR UPDATE OF l SKIP LOCKED
    ))
    RETURNING name, token
), {note-removed}

-- name: grant.forgotten
-- Those whose tick was 366 days ago. A job that is later than that would be done again.
WITH gone AS (
    DELETE FROM sqllock_locks WHERE ctid = ANY (ARRAY(
        SELECT l.ctid FROM sqllock_locks l
         WHERE {idle}
           AND l.tick < {micros} - 31622400000000 AND {unused}
         LIMIT :limit::bigint
           FOR UPDATE OF l SKIP LOCKED
    ))
    RETURNING name, token
), {note-removed}

-- name: insert.stale
-- Rows whose owner no longer has the name: their holders crashed, or another strategy took the name over.
SELECT i.name, i.owner FROM sqllock_inserts i
 WHERE NOT EXISTS (SELECT 1 FROM sqllock_locks l WHERE l.name = i.name AND l.owner = i.owner) AND {at-primary}
 ORDER BY i.name LIMIT 1000

-- name: insert.clear-stale
DELETE FROM sqllock_inserts WHERE name = (
    SELECT name FROM sqllock_inserts WHERE name = :name AND owner = :owner FOR UPDATE SKIP LOCKED)


-- Notes

-- name: notes.read
SELECT owner, (pg_catalog.date_part('epoch', expires_at - {now}) * 1000000::float)::bigint, tick, asked
  FROM sqllock_locks WHERE name = :name AND {here}

-- name: notes.mark
UPDATE sqllock_locks SET tick = greatest(tick, :mark::bigint) WHERE name = :name AND owner = :owner AND {here}

-- name: notes.ask
UPDATE sqllock_locks SET asked = pg_catalog.concat(owner, ' ', :reason::pg_catalog.text)
 WHERE name = :name AND owner <> '' AND expires_at > {now} AND {here}

-- name: notes.announce
-- The commit of a notification holds a lock of the whole server, and would wait for the disk.
SELECT pg_catalog.pg_notify('sqllock_changed', :name) WHERE {async}


-- Readers

-- name: share.enter
INSERT INTO sqllock_shares AS s (name, owner, phase, expires_at, acquired_at, host, pid, label, metadata)
SELECT :name::pg_catalog.text, :owner::pg_catalog.text, :phase::pg_catalog.text, {now} + :lease::float * interval '1 microsecond', {now},
       :host::pg_catalog.text, :pid, :label::pg_catalog.text, :metadata::pg_catalog.text
 WHERE {here-shares} AND {commit-lease}
    ON CONFLICT (name, owner) DO UPDATE
   SET phase = excluded.phase, expires_at = CASE WHEN s.phase = excluded.phase THEN greatest(s.expires_at, excluded.expires_at) ELSE excluded.expires_at END

-- name: share.keep
UPDATE sqllock_shares SET expires_at = greatest(expires_at, {now} + :lease::float * interval '1 microsecond')
 WHERE name = :name AND owner = :owner AND phase = :phase AND {here-shares} AND {renewable} AND {commit-lease}

-- name: share.leave
DELETE FROM sqllock_shares WHERE name = :name AND owner = :owner AND {here-shares} AND {async-release}

-- name: share.join
WITH read AS (
    SELECT name FROM sqllock_locks
     WHERE name = :name AND owner = :phase AND expires_at > {now} AND (waiting = 0 OR :first::boolean) AND {here} AND {granting} AND {commit-lease}
       FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE sqllock_locks l
   SET expires_at = greatest(l.expires_at, {now} + :lease::float * interval '1 microsecond'), joins = l.joins + 1::bigint,
       waiting = CASE WHEN l.waiting = :line::bigint THEN 0 ELSE l.waiting END
  FROM read WHERE l.name = read.name

-- name: share.prolong
UPDATE sqllock_locks
   SET expires_at = greatest(expires_at, {now} + :lease::float * interval '1 microsecond'), joins = joins + 1::bigint
 WHERE name = :name AND owner = :phase AND {here} AND {renewable} AND {commit-lease}

-- name: share.phase
SELECT owner, joins, (pg_catalog.date_part('epoch', expires_at - {now}) * 1000000::float)::bigint
  FROM sqllock_locks WHERE name = :name

-- name: share.longest
SELECT coalesce((pg_catalog.date_part('epoch', pg_catalog.max(expires_at) - {now}) * 1000000::float)::bigint, 0)
  FROM sqllock_shares WHERE name = :name AND phase = :phase AND {here-shares}

-- name: share.reader
SELECT phase, (pg_catalog.date_part('epoch', expires_at - {now}) * 1000000::float)::bigint
  FROM sqllock_shares WHERE name = :name AND owner = :owner AND {here-shares}

-- name: share.readers
SELECT owner FROM sqllock_shares WHERE name = :name AND phase = :phase AND {at-primary}

-- name: share.holder
SELECT host, pid, label, metadata FROM sqllock_shares
 WHERE name = :name AND phase = :phase AND {at-primary} ORDER BY expires_at DESC LIMIT 1

-- let end-phase = UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
--  WHERE name = :name AND owner = :owner AND joins = :joins AND {async-release}
-- RETURNING l.waiting <> 0

-- name: share.end
{end-phase}

-- name: share.end insert
{gone}
{end-phase}

-- name: share.shorten
UPDATE sqllock_locks SET expires_at = least(expires_at, {now} + :left::float * interval '1 microsecond')
 WHERE name = :name AND owner = :owner AND joins = :joins AND {async}

-- name: share.stale
SELECT name, owner FROM sqllock_shares WHERE expires_at < {now} - interval '1 minute' ORDER BY name, owner LIMIT 1000

-- name: share.clear
DELETE FROM sqllock_shares
 WHERE name = :name AND owner = :owner AND expires_at < {now} - interval '1 minute'


-- The line

-- True of an entry behind so many others that the row of its name need not be changed, nor waited for: it says already that
-- somebody waits, and who forgets that has seen one in line at most. For that all but one of these would have to have had the
-- name, one after the other, while this statement runs. Then the entry is made once more when it is looked how it stands.
-- let crowded = (SELECT l.waiting <> 0::bigint FROM sqllock_locks l WHERE l.name = entry.name) AND (
--     SELECT pg_catalog.count(*) FROM (
--         SELECT 1 FROM sqllock_queue q
--          WHERE q.name = entry.name AND q.process <> :process AND NOT q.behind AND NOT q.shared AND q.slots = 1::bigint AND q.expires_at > {now}
--          LIMIT 3
--     ) others) = 3::bigint

-- name: queue.enqueue
-- Whoever releases the name has its row locked: either this comes first, and the release tells, or it finds the name free.
-- The number changes with each wait, so that nobody who has seen the line before forgets this one. Their loss in a crash
-- of the server costs an Enqueue.
WITH entry AS (
    INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, behind, slots, shared)
    SELECT :process::pg_catalog.text, :id::pg_catalog.text, :name::pg_catalog.text, {micros} - :waited::bigint, {now} + :ttl::float * interval '1 microsecond',
           :host::pg_catalog.text, :pid::bigint, :label::pg_catalog.text, :metadata::pg_catalog.text, :holding::pg_catalog.text, :behind::boolean, :slots::bigint, :shared::boolean
     WHERE {async} AND {briefly}
        ON CONFLICT (process, id) DO UPDATE
       SET expires_at = excluded.expires_at, behind = excluded.behind,
           ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END
    RETURNING name, behind
), line AS MATERIALIZED (
    SELECT entry.name, {crowded} AS crowded FROM entry WHERE NOT entry.behind
), noted AS (
    UPDATE sqllock_locks l SET waiting = greatest(l.waiting + 1::bigint, {micros})
      FROM line WHERE l.name = line.name AND NOT line.crowded
    RETURNING l.name, {free-at} > {now} AS taken
)
SELECT name, taken FROM noted UNION ALL SELECT name, true FROM line WHERE crowded

-- name: queue.enqueue-slots
-- Of the slots beside the first. In order, as others do the same.
WITH slots AS MATERIALIZED (
    SELECT name FROM sqllock_locks
     WHERE name > :above AND name < :below AND {async} AND {briefly}
     ORDER BY name
       FOR NO KEY UPDATE
)
UPDATE sqllock_locks l SET waiting = greatest(l.waiting + 1::bigint, {micros}) FROM slots WHERE l.name = slots.name

-- name: queue.enqueue-all
-- Of several names it waits for no row: as long as it did, it would keep the others' from their grants.
WITH asked AS MATERIALIZED (
    SELECT a.id, a.name, coalesce(a.host, :host::pg_catalog.text) AS host, coalesce(a.pid, :pid::bigint) AS pid, coalesce(a.label, :label::pg_catalog.text) AS label,
           coalesce(a.metadata, :metadata::pg_catalog.text) AS metadata, coalesce(a.holding, :holding::pg_catalog.text) AS holding,
           coalesce(a.waited, :waited::bigint) AS waited, coalesce(a.shared, :shared::boolean) AS shared
      FROM unnest(:each_id::pg_catalog.text[], :each_name::pg_catalog.text[], :each_host::pg_catalog.text[], :each_pid::bigint[], :each_label::pg_catalog.text[],
                  :each_metadata::pg_catalog.text[], :each_holding::pg_catalog.text[], :each_waited::bigint[], :each_shared::boolean[])
               AS a (id, name, host, pid, label, metadata, holding, waited, shared)
), clock AS MATERIALIZED (
    SELECT {micros} AS micros
), entry AS (
    INSERT INTO sqllock_queue (process, id, name, ticket, expires_at, host, pid, label, metadata, holding, shared)
    SELECT :process::pg_catalog.text, a.id, a.name, clock.micros - a.waited, {now} + :ttl::float * interval '1 microsecond',
           a.host, a.pid, a.label, a.metadata, a.holding, a.shared
      FROM asked a, clock WHERE {async} AND {briefly}
        ON CONFLICT (process, id) DO UPDATE
       SET expires_at = excluded.expires_at, behind = false,
           ticket = CASE WHEN sqllock_queue.behind THEN excluded.ticket ELSE sqllock_queue.ticket END
    RETURNING name
), line AS MATERIALIZED (
    SELECT entry.name, {crowded} AS crowded FROM entry
), free AS MATERIALIZED (
    SELECT l.name FROM sqllock_locks l WHERE l.name IN (SELECT name FROM line WHERE NOT crowded)
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
), noted AS (
    UPDATE sqllock_locks l SET waiting = greatest(l.waiting + 1::bigint, {micros})
      FROM free WHERE l.name = free.name
    RETURNING l.name, {free-at} > {now} AS taken
)
SELECT name, taken FROM noted UNION ALL SELECT name, true FROM line WHERE crowded

-- It waits for nobody: a grant that takes several out of the line would wait for those that it has, and one of both would end in a
-- deadlock, which PostgreSQL sees after a second. One that is skipped has been granted, or is kept the next time.
-- let keep = UPDATE sqllock_queue SET expires_at = {now} + :ttl::float * interval '1 microsecond'
--  WHERE ctid = ANY (ARRAY(SELECT q.ctid FROM sqllock_queue q WHERE q.process = :process FOR NO KEY UPDATE SKIP LOCKED)) AND {async}

-- name: queue.keep
{keep}

-- name: queue.leave
DELETE FROM sqllock_queue WHERE process = :process AND id = ANY (:each_id::pg_catalog.text[]) AND {async}

-- let ahead = o.ticket < q.ticket OR o.ticket = q.ticket AND o.id < q.id

-- Nobody is ahead of a reader who has readers only before it, nor in its way while readers have the name.
-- let stand = SELECT q.name, q.id, CASE WHEN q.shared AND pg_catalog.count(o.id) FILTER (WHERE ({ahead}) AND NOT o.shared) = 0 THEN 0::bigint
--                           ELSE pg_catalog.count(o.id) FILTER (WHERE {ahead}) END,
--        coalesce((pg_catalog.date_part('epoch', pg_catalog.min(o.expires_at) FILTER (WHERE {ahead}) - {now}) * 1000000::float)::bigint, 0),
--        CASE WHEN q.shared AND {read} THEN 0::bigint
--             ELSE coalesce((pg_catalog.date_part('epoch', l.expires_at - {now}) * 1000000::float)::bigint + l.lock_delay_us, 0::bigint) END,
--        coalesce(l.waiting, 0), pg_catalog.count(o.id), q.slots
--   FROM sqllock_queue q
--   LEFT JOIN sqllock_locks l ON l.name = q.name
--   LEFT JOIN sqllock_queue o ON o.name = q.name AND o.id <> q.id AND NOT o.behind AND o.expires_at > {now}
--  WHERE q.process = :process AND NOT q.behind
--  GROUP BY q.name, q.id, q.ticket, q.slots, q.shared, l.expires_at, l.lock_delay_us, l.waiting, l.owner

-- name: queue.stand
{stand}

-- name: queue.stand keeping
WITH kept AS (
    {keep}
)
{stand}

-- name: queue.waiters
SELECT q.name, q.process, q.id, q.ticket, {micros} - q.ticket, q.host, q.pid, q.label, q.metadata, q.holding, q.behind,
       CASE WHEN l.expires_at > {now} AND q.slots = 1::bigint THEN l.owner ELSE '' END, q.slots, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_locks l ON l.name = q.name
 WHERE q.expires_at > {now} AND (:name::pg_catalog.text = '' OR q.name = :name::pg_catalog.text)
   AND pg_catalog.starts_with(q.name, :prefix) AND (NOT :holds::boolean OR q.holding <> '')
 ORDER BY q.name, q.behind, q.ticket, q.id LIMIT :limit

-- name: queue.dead
SELECT process, id FROM sqllock_queue WHERE expires_at < {now} - interval '1 minute' LIMIT 1000

-- name: queue.tell
-- Not in one statement with what was done before, whose snapshot may be older than a release.
SELECT {tell}
  FROM sqllock_locks l
 WHERE l.name = ANY (:each_name::pg_catalog.text[])
   AND (l.expires_at <= {now} OR {read} AND (
           SELECT q.shared FROM sqllock_queue q
            WHERE q.name = l.name AND NOT q.behind AND q.expires_at > {now} ORDER BY q.ticket, q.id LIMIT 1))
   AND {async}

-- name: queue.tell-all
SELECT pg_catalog.pg_notify('sqllock_released', l.name) FROM sqllock_locks l WHERE l.name = :name AND l.waiting <> 0 AND {async}


-- Many grants at a time

-- name: grant.create-all
INSERT INTO sqllock_locks (name, acquired_at) SELECT n, {now} FROM pg_catalog.unnest(:each_name::pg_catalog.text[]) n
 WHERE {briefly} AND {async} ORDER BY n COLLATE "C" ON CONFLICT DO NOTHING

-- name: grant.ready-all
-- In order, as others do the same.
WITH made AS MATERIALIZED (
    SELECT name FROM sqllock_locks
     WHERE name = ANY (:each_name::pg_catalog.text[]) AND token = 0 AND {briefly} AND {async}
     ORDER BY name
       FOR NO KEY UPDATE
)
UPDATE sqllock_locks l SET token = {floor} FROM made WHERE l.name = made.name

-- let take-all = token = CASE WHEN l.owner = a.owner THEN l.token ELSE greatest(l.token + a.tokens, {micros}) END,
--        owner = a.owner, expires_at = greatest(CASE WHEN l.owner = a.owner THEN l.expires_at END,
--                                               {now} + a.lease::float * interval '1 microsecond'),
--        lock_delay_us = a.delay, acquired_at = {now}, host = a.host, pid = a.pid, label = a.label, metadata = a.metadata,
--        strategy = :strategy, ended = '', waiting = CASE WHEN l.waiting = a.line THEN 0 ELSE l.waiting END

-- What each of several requests asks for. An array is empty if all have the same value, which is bound beside it: that is nearly always
-- so, and arrays take time to write and to read.
-- let each-request = :each_name::pg_catalog.text[], :each_owner::pg_catalog.text[], :each_lease::bigint[], :each_delay::bigint[], :each_host::pg_catalog.text[], :each_pid::bigint[],
--                    :each_label::pg_catalog.text[], :each_metadata::pg_catalog.text[], :each_tokens::bigint[], :each_first::boolean[], :each_line::bigint[], :each_wait::pg_catalog.text[]
-- let of-each = name, owner, lease, delay, host, pid, label, metadata, tokens, first, line, wait
-- let request = a.name, a.owner, coalesce(a.lease, :lease::bigint) AS lease, coalesce(a.delay, :delay::bigint) AS delay,
--        coalesce(a.host, :host::pg_catalog.text) AS host, coalesce(a.pid, :pid::bigint) AS pid, coalesce(a.label, :label::pg_catalog.text) AS label,
--        coalesce(a.metadata, :metadata::pg_catalog.text) AS metadata, coalesce(a.tokens, :tokens::bigint) AS tokens,
--        coalesce(a.first, :first::boolean) AS first, coalesce(a.line, :line::bigint) AS line, coalesce(a.wait, :wait::pg_catalog.text) AS wait

-- let free-of-asked = WITH asked AS MATERIALIZED (
--     SELECT {request} FROM unnest({each-request}) AS a ({of-each})
-- ), free AS MATERIALIZED (
--     SELECT l.token + a.tokens AS next, a.* FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.token <> 0
--      WHERE {here} AND ({free-at} <= {now} AND (l.waiting = 0 OR a.first) OR l.owner = a.owner) AND {granting}
--      ORDER BY l.name
--        FOR UPDATE OF l SKIP LOCKED
-- )

-- name: grant.acquire-all
-- Of two requests for one name at most one is granted: the row changes once, and only what RETURNING says is a grant. The array has
-- the entries of the line looked up one by one: a join may compare each one that the process has with each request.
{free-of-asked}, queue AS (
    DELETE FROM sqllock_queue q WHERE q.process = :process AND q.id = ANY (ARRAY(SELECT a.wait FROM free a WHERE :process::pg_catalog.text <> ''))
)
UPDATE sqllock_locks l
   SET {take-all}
  FROM free a
 WHERE l.name = a.name AND {commit-all}
RETURNING l.owner, l.token

-- name: insert.acquire-all
{free-of-asked}, left_over AS MATERIALIZED (
    SELECT i.name, free.owner FROM free JOIN sqllock_inserts i ON i.name = free.name FOR UPDATE OF i SKIP LOCKED
), missing AS MATERIALIZED (
    SELECT free.name, free.owner FROM free WHERE NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = free.name)
), replaced AS (
    UPDATE sqllock_inserts i SET owner = left_over.owner FROM left_over WHERE i.name = left_over.name
    RETURNING i.owner
), added AS (
    INSERT INTO sqllock_inserts (name, owner)
    SELECT missing.name, missing.owner FROM missing WHERE (SELECT {briefly}) ORDER BY missing.name
        ON CONFLICT DO NOTHING
    RETURNING owner
), present AS MATERIALIZED (
    SELECT free.* FROM free JOIN (SELECT owner FROM replaced UNION ALL SELECT owner FROM added) made ON made.owner = free.owner
), {releasable}, queue AS (
    DELETE FROM sqllock_queue q WHERE q.process = :process AND q.id = ANY (ARRAY(SELECT a.wait FROM present a WHERE :process::pg_catalog.text <> ''))
)
UPDATE sqllock_locks l
   SET {take-all}
  FROM present a
 WHERE l.name = a.name AND {commit-all}
RETURNING l.owner, l.token

-- name: grant.state-all
SELECT name, {state} WHERE name = ANY (:each_name::pg_catalog.text[])

-- name: grant.renew-all
WITH ours AS MATERIALIZED (
    SELECT l.name FROM unnest(:each_name::pg_catalog.text[], :each_owner::pg_catalog.text[]) AS a (name, owner)
      JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     WHERE {here} AND {renewable} AND {commit-lease}
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE sqllock_locks l
   SET expires_at = greatest(expires_at, {now} + :lease::float * interval '1 microsecond')
  FROM ours WHERE l.name = ours.name
RETURNING l.owner, false

-- let free-ours = UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0
--   FROM ours WHERE l.name = ours.name

-- let ours = WITH ours AS MATERIALIZED (
--     SELECT l.name, l.owner FROM unnest(:each_name::pg_catalog.text[], :each_owner::pg_catalog.text[]) AS a (name, owner)
--       JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
--      WHERE {here} AND {async-release}
--      ORDER BY l.name
--        FOR NO KEY UPDATE OF l SKIP LOCKED
-- )
-- {free-ours}

-- name: grant.release-all
{ours}
RETURNING ours.owner, {tell}

-- name: grant.release-all quietly
{ours}
RETURNING ours.owner, l.waiting <> 0

-- A record whose row somebody has locked is not freed here.
-- let ours-with-row = WITH ours AS MATERIALIZED (
--     SELECT l.name, l.owner FROM unnest(:each_name::pg_catalog.text[], :each_owner::pg_catalog.text[]) AS a (name, owner)
--       JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
--       JOIN sqllock_inserts i ON i.name = l.name AND i.owner = l.owner
--      WHERE {here} AND {async-release}
--      ORDER BY l.name
--        FOR NO KEY UPDATE OF l SKIP LOCKED
--        FOR UPDATE OF i SKIP LOCKED
-- ), gone AS (
--     DELETE FROM sqllock_inserts i USING ours WHERE i.name = ours.name
-- )
-- {free-ours}

-- name: insert.release-all
{ours-with-row}
RETURNING ours.owner, {tell}

-- name: insert.release-all quietly
{ours-with-row}
RETURNING ours.owner, l.waiting <> 0


-- Strategy forupdate

-- name: forupdate.exists
SELECT 1 FROM sqllock_mutexes WHERE name = :name AND {at-primary}

-- name: forupdate.create
INSERT INTO sqllock_mutexes (name) SELECT :name::pg_catalog.text WHERE {briefly} ON CONFLICT DO NOTHING

-- name: forupdate.begin
BEGIN ISOLATION LEVEL READ COMMITTED

-- name: forupdate.renew
-- name: forupdate.renew locked
-- A SET, which reads nothing. What the driver has read last stays open in the transaction, with its snapshot, until the
-- next statement takes its place (https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-EXT-QUERY): a
-- SELECT would show in pg_stat_activity.backend_xmin, and every CREATE INDEX CONCURRENTLY in the database would wait for
-- the lock's release. pgpool-II sends a SET to all servers. It takes no parameter.
SET LOCAL idle_in_transaction_session_timeout = %s

-- A condition, always true, that has settings of the transaction, gone with it. application_name marks the session with
-- its owner, for the reaper and for people. transaction_timeout, from version 17 on, would end a holder that is alive.
-- Milliseconds, as text.
-- let limit = pg_catalog.set_config('idle_in_transaction_session_timeout', :limit, true) IS NOT NULL
--    AND pg_catalog.set_config('application_name', :session, true) IS NOT NULL
--    AND CASE WHEN pg_catalog.current_setting('transaction_timeout', true) IS NULL THEN true
--             ELSE pg_catalog.set_config('transaction_timeout', '0', true) IS NOT NULL END

-- name: forupdate.lock
-- It takes the row, and only then sets the limit: what is selected is computed before rows are locked
-- (https://www.postgresql.org/docs/current/sql-select.html#SQL-FOR-UPDATE-SHARE). The transaction's number says whether it
-- goes on.
SELECT CASE WHEN {limit}
            THEN pg_catalog.pg_current_xact_id()::pg_catalog.text END
  FROM (SELECT name FROM sqllock_mutexes WHERE name = :name AND {here} AND {here-mutexes} FOR UPDATE SKIP LOCKED) locked

-- name: forupdate.lock-shared
SELECT CASE WHEN {limit}
            THEN pg_catalog.pg_current_xact_id()::pg_catalog.text END
  FROM (SELECT name FROM sqllock_mutexes WHERE name = :name AND {here} AND {here-mutexes} FOR SHARE SKIP LOCKED) locked

-- name: forupdate.release
ROLLBACK

-- name: forupdate.sessions
SELECT a.pid
  FROM sqllock_locks l JOIN pg_catalog.pg_stat_activity a ON a.application_name = 'sqllock:' || l.owner
 WHERE l.strategy = 'forupdate' AND l.owner <> '' AND l.expires_at <= {now}
   AND a.datname = pg_catalog.current_database()
 UNION
SELECT a.pid
  FROM sqllock_shares s JOIN pg_catalog.pg_stat_activity a ON a.application_name = 'sqllock:' || s.owner
 WHERE s.expires_at <= {now} AND a.datname = pg_catalog.current_database()

-- name: forupdate.session
SELECT pid FROM pg_catalog.pg_stat_activity
 WHERE application_name = :session AND datname = pg_catalog.current_database() AND {at-primary}

-- name: forupdate.kill
SELECT pg_catalog.pg_terminate_backend(:id::bigint::int)


-- Strategy advisory

-- name: advisory.identity
SELECT pg_catalog.pg_backend_pid()::pg_catalog.text WHERE {at-primary}

-- name: advisory.namespace
-- Keys are the database's; its sqllock_locks may be one of several, in several schemas.
SELECT 'sqllock_locks'::pg_catalog.regclass::pg_catalog.oid::pg_catalog.text, pg_catalog.pg_backend_pid()::bigint
 WHERE {at-primary}

-- name: advisory.limit
-- idle_session_timeout is there from version 14 on. On 13 a client that is frozen, and not dead, keeps its locks.
SELECT CASE WHEN pg_catalog.current_setting('idle_session_timeout', true) IS NOT NULL
            THEN pg_catalog.set_config('idle_session_timeout', :limit, false) END,
       pg_catalog.set_config('application_name', 'sqllock advisory', false)

-- name: advisory.reset
SELECT pg_catalog.set_config(name, reset_val, false) FROM pg_catalog.pg_settings
 WHERE name IN ('idle_session_timeout', 'application_name')

-- name: advisory.try-shared
SELECT pg_catalog.pg_try_advisory_lock_shared(:key), pg_catalog.pg_is_in_recovery()

-- name: advisory.release unlock
SELECT pg_catalog.pg_advisory_unlock(:key)

-- name: advisory.release-shared
SELECT pg_catalog.pg_advisory_unlock_shared(:key)

-- True of a name's row that an owner may have who has the key, as the compare-and-set above has it. That of a session
-- which has ended need not run out: whoever has the key replaces it, see Replaces.
--
-- The key is tried if the row seems free, so that a try of a name that is held, or others wait for, does not keep its
-- holder's next waiter from it for a moment. What then counts is the row as it is when it is locked, behind the key: the
-- snapshot is older than that.
-- let free-for-key = AND {here}
--        AND ({free-at} <= {now} OR l.owner = :owner OR l.strategy = 'advisory')
--        AND (l.waiting = 0 OR :first::boolean OR l.owner = :owner) AND l.token <> 0 AND {granting}

-- As that of "grant.acquire held": a crash ends the lock, too.
-- let quickly = (SELECT pg_catalog.set_config('synchronous_commit', CASE WHEN (coalesce(pg_catalog.max(token), 0::bigint) > {micros})::boolean THEN pg_catalog.current_setting('synchronous_commit') ELSE 'off' END, true) <> '' FROM granted)

-- let seen = WITH seen AS MATERIALIZED (SELECT l.name, pg_catalog.pg_try_advisory_lock(:key) AS ok FROM sqllock_locks l WHERE l.name = :name {free-for-key})

-- let free-behind-key = free AS (
--     SELECT l.name FROM seen JOIN sqllock_locks l ON l.name = seen.name
--      WHERE seen.ok {free-for-key}
--        FOR UPDATE OF l SKIP LOCKED
-- )

-- name: advisory.acquire
{seen}, {free-behind-key}, granted AS (
    {acquire}
    RETURNING l.token
)
SELECT :owner::pg_catalog.text, seen.ok, coalesce((SELECT token FROM granted), 0::bigint), {quickly} FROM seen

-- name: advisory.acquire from line
{seen}, {free-behind-key}, {leave}, granted AS (
    {acquire}
    RETURNING l.token
)
SELECT :owner::pg_catalog.text, seen.ok, coalesce((SELECT token FROM granted), 0::bigint), {quickly} FROM seen

-- let free-for-keys = AND {here}
--        AND ({free-at} <= {now} OR l.owner = a.owner OR l.strategy = 'advisory')
--        AND (l.waiting = 0 OR a.first::boolean OR l.owner = a.owner) AND l.token <> 0 AND {granting}

-- name: advisory.acquire-all
WITH asked AS MATERIALIZED (
    SELECT {request}, a.key FROM unnest({each-request}, :each_key::bigint[]) AS a ({of-each}, key)
), seen AS MATERIALIZED (
    SELECT a.*, pg_catalog.pg_try_advisory_lock(a.key) AS ok FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C"
     WHERE true
       {free-for-keys}
), free AS MATERIALIZED (
    SELECT a.* FROM seen a JOIN sqllock_locks l ON l.name = a.name COLLATE "C"
     WHERE a.ok
       {free-for-keys}
     ORDER BY l.name
       FOR UPDATE OF l SKIP LOCKED
), queue AS (
    DELETE FROM sqllock_queue q WHERE q.process = :process AND q.id = ANY (ARRAY(SELECT a.wait FROM free a WHERE :process::pg_catalog.text <> ''))
), granted AS (
    UPDATE sqllock_locks l
       SET {take-all}
      FROM free a
     WHERE l.name = a.name
    RETURNING l.owner, l.token
)
SELECT a.owner, a.ok, coalesce(g.token, 0::bigint), {quickly}
  FROM seen a LEFT JOIN granted g ON g.owner = a.owner

-- name: advisory.release
-- The record first, while the key keeps others out, and the key of a record only that was ended: until the first part has
-- returned it there is no row here. The key is free a moment before the commit. Whoever takes it by then cannot take the
-- record before, because the row is locked, and skips it: the name is not free yet. Once it is committed they have the row
-- as it is then, whatever their snapshot shows. If the commit fails, they replace what it says, as of a session that has
-- ended, and the caller finds that out. So it notifies nobody: that can make the commit fail.
WITH ended AS (
    {release} AND {async-release}
    RETURNING l.waiting <> 0 AS contended
)
SELECT :owner::pg_catalog.text, e.contended, pg_catalog.pg_advisory_unlock(:key) FROM ended e

-- name: advisory.release-all
-- A name whose row somebody has locked keeps its key, as it keeps its record.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(:each_name::pg_catalog.text[], :each_owner::pg_catalog.text[], :each_key::bigint[]) AS a (name, owner, key)
), ours AS MATERIALIZED (
    SELECT l.name, l.owner FROM asked a JOIN sqllock_locks l ON l.name = a.name COLLATE "C" AND l.owner = a.owner
     WHERE {async-release}
     ORDER BY l.name
       FOR NO KEY UPDATE OF l SKIP LOCKED
), ended AS (
    {free-ours}
    RETURNING ours.owner, l.waiting <> 0 AS contended
)
SELECT e.owner, e.contended, pg_catalog.pg_advisory_unlock(a.key) FROM ended e JOIN asked a ON a.owner = e.owner

-- name: advisory.release-left
-- An error takes no key back. That the session has none of them is no fault, but a warning in the server's log, so it is
-- asked first which it has.
SELECT pg_catalog.pg_advisory_unlock(k.key) FROM pg_catalog.unnest(:keys::bigint[]) AS k (key) WHERE k.key IN (
    SELECT (classid::bigint << 32) | objid::bigint FROM pg_catalog.pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND mode = 'ExclusiveLock' AND pid = pg_catalog.pg_backend_pid())

-- name: advisory.check
SELECT 1 WHERE {at-primary}

-- name: advisory.session
-- A 64-bit key is shown as two halves (https://www.postgresql.org/docs/current/view-pg-locks.html).
SELECT pid FROM pg_catalog.pg_locks
 WHERE locktype = 'advisory' AND granted AND objsubid = 1
   AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
   AND (classid::bigint << 32) | objid::bigint = :key::bigint AND {at-primary}

-- name: advisory.kill
SELECT pg_catalog.pg_terminate_backend(:id::bigint::int)


-- What PostgreSQL does without

-- A row that another transaction has changed is read as it was before.
-- none: recovery.settle

-- A lease is in the row of its name, and a statement that takes it changes the row of insert, too.
-- none: grant.create-lease, grant.force-lease, insert.gone, grant.create-all-leases, grant.leases-all
-- none: insert.look, insert.look-all, insert.clear, insert.insert, insert.insert-all, insert.gone-all
-- none: insert.begin, insert.commit, insert.rollback

-- grant.idle and grant.forgotten remove what they find. No transaction has more than one statement.
-- none: remove, group.begin, group.commit, group.rollback

-- Enqueue is one statement, and Tell notifies.
-- none: queue.wait, queue.wait-all, queue.taken-all, queue.enqueue-each, queue.wait-each, queue.taken-each
-- none: queue.first, queue.call

-- See briefly.
-- none: grant.brief, grant.patient

-- One node takes writes, and its row locks hold.
-- none: grant.many-primaries, grant.guard-snapshot, grant.guard-write

-- forupdate.lock sets the limit, and marks the session in the transaction, whose end takes both back.
-- none: forupdate.isolate, forupdate.renew begin, forupdate.unmark, forupdate.reset

-- An answer says what became of each.
-- none: advisory.look, advisory.state
