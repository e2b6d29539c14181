-- +goose Up

-- Locks for programs without the library, in any language. They may be left out: nothing of sqllock calls them.
-- docs/protocol.md says how to use them. Rows, tokens and rules are those of strategy cas, except that nobody waits
-- in line here: whom sqllock_acquire refuses asks again later. They act with the rights of their caller.
--
-- Both sides of an operator have types that pg_catalog has it for, so that nothing that somebody has made in the
-- tables' schema is called in its place.

-- They are made beside the tables, and names are the same text for all in UTF-8 only.
-- +goose StatementBegin
DO $$
BEGIN
    IF pg_catalog.current_setting('server_encoding') <> 'UTF8'::text THEN
        RAISE 'sqllock: this database is in %, and locks need one in UTF8', pg_catalog.current_setting('server_encoding');
    ELSIF pg_catalog.to_regclass(pg_catalog.concat(pg_catalog.quote_ident(pg_catalog.current_schema()::text), '.sqllock_locks'::text)) IS NULL THEN
        RAISE 'sqllock: its tables are not in schema %: make them first, or let search_path begin with the schema that they are in',
            pg_catalog.current_schema();
    END IF;
END
$$;
-- +goose StatementEnd

-- Which server this is, as sqllock_recovery names it: its timeline, and the table's number. Aurora shows no timeline.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sqllock_server() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN concat(left(pg_walfile_name(pg_current_wal_lsn()), 8), ' '::text, 'sqllock_locks'::regclass::oid::bigint);
EXCEPTION WHEN feature_not_supported OR insufficient_privilege OR undefined_function THEN
    RETURN concat('no timeline '::text, 'sqllock_locks'::regclass::oid::bigint);
END
$$;
-- +goose StatementEnd

-- True while a grant of so many microseconds is allowed: it is noted that there are such, and this is the server that
-- took the writes last, and has not crashed since with grants that commit asynchronously.
CREATE OR REPLACE FUNCTION sqllock_noted(us bigint) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM sqllock_recovery v
                    WHERE v.id = 1::bigint AND v.allowed_us >= us AND (v.server = sqllock_server() OR v.lossless)
                      AND v.run = coalesce((SELECT r.run FROM sqllock_run r WHERE r.id = 1::bigint), ''::text))
$$;

-- The microseconds of a lease, which may be granted from here on: after a look at what it is asked for, this notes how
-- long it is, and which server this is. Another server than before, or one that has crashed, may lack the latest
-- grants: nothing is granted then until the longest that there may be has ended.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sqllock_promise(lock_name text, lock_owner text, lease interval) RETURNS bigint LANGUAGE plpgsql AS $$
<<here>>
DECLARE
    v       sqllock_recovery;
    us      bigint;
    server  text := sqllock_server();
    run     text := coalesce((SELECT r.run FROM sqllock_run r WHERE r.id = 1::bigint), ''::text);
    asker   text := concat('application_name '::text, current_setting('application_name'));
    crashed boolean;
    moved   boolean;
BEGIN
    IF (octet_length(lock_name) BETWEEN 1 AND 255 AND strpos(lock_name, chr(31)) = 0) IS NOT TRUE THEN
        RAISE 'sqllock: a name has 1 to 255 bytes, and no character U+001F' USING ERRCODE = 'invalid_parameter_value';
    ELSIF (lock_owner ~ '^[A-Za-z0-9_.-]{16,64}$'::text AND lock_owner !~ '^(shared|detached)-'::text) IS NOT TRUE THEN
        RAISE 'sqllock: an owner has 16 to 64 letters, digits, and characters of "_.-", and is random for each acquisition, as gen_random_uuid() is'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF (date_part('epoch', lease) BETWEEN 0.1::float AND 31622400::float) IS NOT TRUE THEN
        RAISE 'sqllock: a lease is between 100 milliseconds and 366 days' USING ERRCODE = 'invalid_parameter_value';
    END IF;

    us := (date_part('epoch', lease) * 1000000::float)::bigint;

    IF sqllock_noted(us) THEN
        RETURN us;
    END IF;

    INSERT INTO sqllock_recovery (id, lowered_at) VALUES (1::bigint, clock_timestamp()) ON CONFLICT DO NOTHING;
    SELECT r.* INTO v FROM sqllock_recovery r WHERE r.id = 1::bigint FOR UPDATE;

    crashed := v.run <> ''::text AND v.run <> run;
    moved := v.server <> ''::text AND v.server <> server AND (crashed OR NOT v.lossless);

    IF v.paused_until <= clock_timestamp() THEN
        v.crashed := false;
        v.changes := CASE WHEN moved THEN 0::bigint ELSE v.changes END;
    END IF;

    IF moved OR crashed THEN
        v.paused_until := greatest(v.paused_until, clock_timestamp() + v.longest_us::float * interval '1 microsecond');
        v.changes := v.changes + moved::integer::bigint;
        v.crashed := crashed OR v.crashed;
        v.reason := CASE WHEN moved THEN 'another server has become the primary'
                         ELSE 'the server has crashed, and grants are with asynchronous commit' END;
    END IF;

    UPDATE sqllock_recovery r
       SET paused_until = v.paused_until, changes = v.changes, crashed = v.crashed, reason = v.reason, server = here.server, run = here.run,
           previous = CASE WHEN v.server = here.server THEN v.previous ELSE v.server END,
           longest_by = CASE WHEN v.longest_us < us THEN asker ELSE v.longest_by END, longest_us = greatest(v.longest_us, us),
           allowed_by = CASE WHEN v.allowed_us < us THEN asker ELSE v.allowed_by END, allowed_us = greatest(v.allowed_us, us)
     WHERE r.id = 1::bigint;

    RETURN us;
END
$$;
-- +goose StatementEnd

-- sqllock_acquire grants the lock, and returns its fencing token; NULL if it cannot be had now: somebody has it, waits
-- for it or has its row locked, or the server has just taken over. It waits for nobody. Who has it already, by the same
-- owner, gets the same token, so that it can be asked again after an answer that was lost.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sqllock_acquire(lock_name text, lock_owner text, lease interval) RETURNS bigint LANGUAGE plpgsql
    SET lock_timeout = '100ms' AS $$
<<here>>
DECLARE
    us    bigint;
    lined bigint; -- the number of the latest wait, unless somebody is in line still
    known bigint; -- the token in the name's row
    token bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed'::text THEN
        RAISE 'sqllock: acquire at READ COMMITTED, in a transaction of its own' USING ERRCODE = 'active_sql_transaction';
    END IF;

    us := sqllock_promise(lock_name, lock_owner, lease);

    SELECT l.token, CASE WHEN EXISTS (
               SELECT 1 FROM sqllock_queue q WHERE q.name = l.name AND NOT q.behind AND q.expires_at > clock_timestamp()
           ) THEN 0::bigint ELSE l.waiting END
      INTO known, lined FROM sqllock_locks l WHERE l.name = lock_name COLLATE "C";

    IF known IS NULL OR known = 0::bigint THEN
        -- In two statements: the second sees what was removed before the first.
        INSERT INTO sqllock_locks AS l (name, acquired_at) VALUES (lock_name, clock_timestamp()) ON CONFLICT DO NOTHING;
        UPDATE sqllock_locks l SET token = greatest(1::bigint, (SELECT f.token FROM sqllock_floor f WHERE f.id = 1::bigint))
         WHERE l.name = lock_name COLLATE "C" AND l.token = 0::bigint;
    END IF;

    -- FOR UPDATE is what a guard is in the way of. A row that has changed meanwhile is judged as it is then, at that time.
    WITH free AS (
        SELECT l.name FROM sqllock_locks l
         WHERE l.name = lock_name COLLATE "C" AND l.token <> 0::bigint
           AND (l.owner = lock_owner OR l.waiting IN (0::bigint, lined)
                    AND l.expires_at + l.lock_delay_us::float * interval '1 microsecond' <= clock_timestamp())
           AND sqllock_noted(us)
           AND EXISTS (SELECT 1 FROM sqllock_recovery v WHERE v.id = 1::bigint AND v.paused_until <= clock_timestamp())
           FOR UPDATE SKIP LOCKED
    )
    UPDATE sqllock_locks l
       SET token = CASE WHEN l.owner = lock_owner THEN l.token
                        ELSE greatest(l.token + 1::bigint, (date_part('epoch', clock_timestamp()) * 1000000::float)::bigint) END,
           expires_at = greatest(CASE WHEN l.owner = lock_owner THEN l.expires_at END, clock_timestamp() + us::float * interval '1 microsecond'),
           owner = lock_owner, lock_delay_us = 0::bigint, acquired_at = clock_timestamp(), host = coalesce(host(inet_client_addr()), ''::text),
           pid = 0::bigint, label = current_setting('application_name'), metadata = '', strategy = 'cas', ended = '',
           waiting = CASE WHEN l.waiting = lined THEN 0::bigint ELSE l.waiting END
      FROM free WHERE l.name = free.name
    RETURNING l.token INTO here.token;

    RETURN here.token;
EXCEPTION WHEN lock_not_available THEN
    RETURN NULL; -- of the table, or of a row that somebody makes
END
$$;
-- +goose StatementEnd

-- sqllock_renew has the lease run for at least so long from now on. False: the lock is not this owner's any more. It
-- waits for a transaction that has the row locked, and fails after five seconds, which says nothing of the lock.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sqllock_renew(lock_name text, lock_owner text, lease interval) RETURNS boolean LANGUAGE plpgsql
    SET lock_timeout = '5s' AS $$
DECLARE
    us bigint := sqllock_promise(lock_name, lock_owner, lease);
BEGIN
    -- A lease that is over is not renewed in a pause: what has ended it may be lost.
    UPDATE sqllock_locks l SET expires_at = greatest(l.expires_at, clock_timestamp() + us::float * interval '1 microsecond')
     WHERE l.name = lock_name COLLATE "C" AND l.owner = lock_owner AND sqllock_noted(us)
       AND (l.expires_at > clock_timestamp()
            OR EXISTS (SELECT 1 FROM sqllock_recovery v WHERE v.id = 1::bigint AND v.paused_until <= clock_timestamp()));

    RETURN FOUND;
END
$$;
-- +goose StatementEnd

-- sqllock_release frees the lock, and tells who is the first in line. False: it is not this owner's any more.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sqllock_release(lock_name text, lock_owner text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    lined bigint;
BEGIN
    UPDATE sqllock_locks l SET owner = '', expires_at = 'epoch', lock_delay_us = 0::bigint
     WHERE l.name = lock_name COLLATE "C" AND l.owner = lock_owner AND lock_owner <> ''::text
    RETURNING l.waiting INTO lined;

    IF NOT FOUND OR lined = 0::bigint THEN
        RETURN lined IS NOT NULL;
    END IF;

    PERFORM pg_notify('sqllock_'::text || q.process, '0 '::text || q.id || ' '::text || lock_name)
       FROM sqllock_queue q
      WHERE q.name = lock_name COLLATE "C" AND NOT q.behind AND q.expires_at > clock_timestamp()
      ORDER BY q.ticket, q.id LIMIT 1;

    IF NOT FOUND THEN
        PERFORM pg_notify('sqllock_released', lock_name); -- somebody is about to be in line
    END IF;

    RETURN true;
END
$$;
-- +goose StatementEnd

-- sqllock_guard is for a transaction that writes under the lock, before it writes: it fails if the lock is not this
-- grant's any more, and otherwise nobody else is granted it before the transaction ends.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sqllock_guard(lock_name text, lock_owner text, lock_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sqllock_locks l
      WHERE l.name = lock_name COLLATE "C" AND l.owner = lock_owner AND l.token = lock_token AND lock_owner <> ''::text
        FOR KEY SHARE;

    IF NOT FOUND THEN
        RAISE 'sqllock: lock "%" is not held by this owner with token %', lock_name, lock_token
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Roll back: somebody else may have it.';
    END IF;
END
$$;
-- +goose StatementEnd

-- They find the tables beside which they were made, whatever the search_path of their caller.
-- +goose StatementBegin
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOREACH f IN ARRAY ARRAY['sqllock_server()', 'sqllock_noted(bigint)', 'sqllock_promise(text, text, interval)',
                             'sqllock_acquire(text, text, interval)', 'sqllock_renew(text, text, interval)', 'sqllock_release(text, text)',
                             'sqllock_guard(text, text, bigint)']::regprocedure[] LOOP
        EXECUTE (SELECT pg_catalog.format('ALTER FUNCTION %s SET search_path = pg_catalog, %s, pg_temp', f, c.relnamespace::regnamespace)
                   FROM pg_catalog.pg_class c WHERE c.oid = 'sqllock_locks'::regclass::oid);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down

DROP FUNCTION IF EXISTS sqllock_guard(text, text, bigint);
DROP FUNCTION IF EXISTS sqllock_release(text, text);
DROP FUNCTION IF EXISTS sqllock_renew(text, text, interval);
DROP FUNCTION IF EXISTS sqllock_acquire(text, text, interval);
DROP FUNCTION IF EXISTS sqllock_promise(text, text, interval);
DROP FUNCTION IF EXISTS sqllock_noted(bigint);
DROP FUNCTION IF EXISTS sqllock_server();
