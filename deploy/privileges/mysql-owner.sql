-- Who migrates, on MySQL, MariaDB and TiDB: run this as an administrator, then "sqllock migrate up" as sqllock_owner.
-- The database sqllock and the users sqllock_owner, sqllock_app and sqllock_watcher are yours: make them, or put other names in
-- their place. DROP and DELETE are for "sqllock migrate down".
GRANT CREATE, CREATE VIEW, SELECT, INSERT, DROP, DELETE ON sqllock.* TO sqllock_owner@'%';
