-- Who migrates, on PostgreSQL: run this as a superuser, in the database of the tables, then "sqllock migrate up" as sqllock_owner.
-- The roles sqllock_owner, sqllock_app and sqllock_watcher are yours: make them, or put the names of others in their place.
-- With a schema for the tables alone everybody's URL has search_path=sqllock.
CREATE SCHEMA sqllock AUTHORIZATION sqllock_owner;
