-- Who locks and who only looks, on PostgreSQL: run this after "sqllock migrate up", as sqllock_owner.
GRANT USAGE ON SCHEMA sqllock TO sqllock_app, sqllock_watcher;

-- The library, and all of the command but "migrate". For functions, see docs/protocol.md.
GRANT SELECT, INSERT, UPDATE, DELETE
   ON sqllock.sqllock_locks, sqllock.sqllock_inserts, sqllock.sqllock_mutexes, sqllock.sqllock_shares, sqllock.sqllock_queue
   TO sqllock_app;
GRANT SELECT, INSERT, UPDATE ON sqllock.sqllock_floor, sqllock.sqllock_recovery, sqllock.sqllock_run TO sqllock_app;

-- "sqllock ls", "show", "wait", "serve" and "migrate status", and who asks the views.
GRANT SELECT ON ALL TABLES IN SCHEMA sqllock TO sqllock_app, sqllock_watcher;
