-- Who migrates, on MySQL, MariaDB and TiDB: run this as an administrator, then "sqllock migrate up" as sqllock_owner.
-- The database sqllock and the users sqllock_owner, sqllock_app and sqllock_watcher are yours: make them, or put other names in
-- their place. DROP and DELETE are for "sqllock migrate down", ALTER and INDEX for later migrations.
GRANT CREATE, CREATE VIEW, ALTER, INDEX, SELECT, INSERT, DROP, DELETE ON sqllock.* TO sqllock_owner@'%';
