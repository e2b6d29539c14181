-- Who locks and who only looks, on MySQL, MariaDB and TiDB: run this after "sqllock migrate up", as an administrator.
-- A guard needs the tables in the database of your data. There, grant SELECT on each of the tables and views, and not on all.

-- The library, and all of the command but "migrate".
GRANT SELECT, INSERT, UPDATE, DELETE ON sqllock.sqllock_locks TO sqllock_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON sqllock.sqllock_leases TO sqllock_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON sqllock.sqllock_inserts TO sqllock_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON sqllock.sqllock_mutexes TO sqllock_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON sqllock.sqllock_shares TO sqllock_app@'%';
GRANT SELECT, INSERT, UPDATE, DELETE ON sqllock.sqllock_queue TO sqllock_app@'%';
GRANT SELECT, INSERT, UPDATE ON sqllock.sqllock_floor TO sqllock_app@'%';
GRANT SELECT, INSERT, UPDATE ON sqllock.sqllock_recovery TO sqllock_app@'%';
GRANT SELECT ON sqllock.* TO sqllock_app@'%';

-- "sqllock ls", "show", "wait", "serve" and "migrate status", and who asks the views.
GRANT SELECT ON sqllock.* TO sqllock_watcher@'%';
