-- +goose Up

-- One row for each name, kept after release: the token must go on growing.
-- Names are VARBINARY, which compares byte for byte; text collations here
-- ignore case or trailing spaces. The lease is in a table of its own: a guard
-- locks the row here in shared mode until the caller commits, and InnoDB has
-- no lock that would let a renewal of the same row pass beside it.
CREATE TABLE sqllock_locks (
    name          VARBINARY(255)  NOT NULL PRIMARY KEY,
    token         BIGINT          NOT NULL DEFAULT 0,  -- fencing token of the last grant
    owner         VARBINARY(64)   NOT NULL DEFAULT '', -- random, one per acquisition
    strategy      VARBINARY(32)   NOT NULL DEFAULT '',
    lock_delay_us BIGINT          NOT NULL DEFAULT 0,
    acquired_at   BIGINT          NOT NULL DEFAULT 0,  -- microseconds since 1970, UTC
    host          VARBINARY(255)  NOT NULL DEFAULT '',
    pid           BIGINT          NOT NULL DEFAULT 0,
    label         VARBINARY(255)  NOT NULL DEFAULT '',
    metadata      VARBINARY(4096) NOT NULL DEFAULT '',
    ended         VARBINARY(255)  NOT NULL DEFAULT ''  -- why the last grant ended, if not by its own release
) ENGINE = InnoDB;

CREATE TABLE sqllock_leases (
    name          VARBINARY(255) NOT NULL PRIMARY KEY,
    owner         VARBINARY(64)  NOT NULL DEFAULT '', -- '' = free
    expires_at    BIGINT         NOT NULL DEFAULT 0,  -- free from here on, plus the delay
    waiting_until BIGINT         NOT NULL DEFAULT 0   -- until then other processes wait for it
) ENGINE = InnoDB;

-- Strategy insert: a row is there = the name is held. The name is the only
-- unique key: a second one brings deadlocks to INSERT ... ON DUPLICATE KEY.
CREATE TABLE sqllock_inserts (
    name          VARBINARY(255) NOT NULL PRIMARY KEY,
    owner         VARBINARY(64)  NOT NULL,
    expires_at    BIGINT         NOT NULL,
    lock_delay_us BIGINT         NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- Strategy forupdate: its row locks are on these rows, which nothing updates.
CREATE TABLE sqllock_mutexes (
    name VARBINARY(255) NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

CREATE VIEW sqllock_holders AS
SELECT CONVERT(l.name USING utf8mb4) AS name, CONVERT(l.strategy USING utf8mb4) AS strategy, l.token,
       CONVERT(l.host USING utf8mb4) AS host, l.pid, CONVERT(l.label USING utf8mb4) AS label,
       CONVERT(l.metadata USING utf8mb4) AS metadata,
       TIMESTAMPADD(MICROSECOND, l.acquired_at, CAST('1970-01-01' AS DATETIME(6))) AS acquired_at,
       (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - l.acquired_at) / 1000000 AS held_seconds,
       (e.expires_at - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) / 1000000 AS remaining_seconds,
       CONVERT(e.owner USING utf8mb4) AS owner
  FROM sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
 WHERE e.owner <> '' AND e.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
UNION ALL
SELECT CONVERT(i.name USING utf8mb4), 'insert', COALESCE(l.token, 0),
       COALESCE(CONVERT(l.host USING utf8mb4), ''), COALESCE(l.pid, 0), COALESCE(CONVERT(l.label USING utf8mb4), ''),
       COALESCE(CONVERT(l.metadata USING utf8mb4), ''),
       TIMESTAMPADD(MICROSECOND, l.acquired_at, CAST('1970-01-01' AS DATETIME(6))),
       COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - l.acquired_at, 0) / 1000000,
       (i.expires_at - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) / 1000000,
       CONVERT(i.owner USING utf8mb4)
  FROM sqllock_inserts i LEFT JOIN sqllock_locks l ON l.name = i.name AND l.owner = i.owner
 WHERE i.owner <> '' AND i.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));

-- +goose Down

DROP VIEW sqllock_holders;
DROP TABLE sqllock_mutexes;
DROP TABLE sqllock_inserts;
DROP TABLE sqllock_leases;
DROP TABLE sqllock_locks;
