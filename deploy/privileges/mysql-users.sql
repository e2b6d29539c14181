-- Who locks and who only looks, on MySQL, MariaDB and TiDB: run this after "sqllock migrate up", as an administrator.

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
