-- +goose Up

-- One row for each name, kept for a while after release. The
-- permits of a name beside the first have rows of their own, called by the name,
-- the character U+001F and the number of the slot in four digits.
-- While readers have a name its owner in sqllock_leases begins with "shared-", and they are in sqllock_shares.
-- Names are VARBINARY, which compares byte for byte: text collations here
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
    guards        BIGINT          NOT NULL DEFAULT 0,  -- another number with each guard, where several nodes take writes
    host          VARBINARY(255)  NOT NULL DEFAULT '',
    pid           BIGINT          NOT NULL DEFAULT 0,
    label         VARBINARY(255)  NOT NULL DEFAULT '',
    metadata      VARBINARY(4096) NOT NULL DEFAULT ''
) ENGINE = InnoDB;

CREATE TABLE sqllock_leases (
    name          VARBINARY(255) NOT NULL PRIMARY KEY,
    owner         VARBINARY(64)  NOT NULL DEFAULT '', -- '' = free
    expires_at    BIGINT         NOT NULL DEFAULT 0,  -- free from here on, plus the delay
    waiting       BIGINT         NOT NULL DEFAULT 0,  -- another number when a wait begins, 0 = nobody waits
    wait          VARBINARY(64)  NOT NULL DEFAULT '', -- whose end was the last grant, if it was one in the line
    ended         VARBINARY(255) NOT NULL DEFAULT '', -- why the last grant ended, if not by its own release
    joins         BIGINT         NOT NULL DEFAULT 0,  -- another number with each reader that comes or renews
    tick          BIGINT         NOT NULL DEFAULT 0,  -- the latest point in time whose job was done
    asked         VARBINARY(512) NOT NULL DEFAULT ''  -- an owner that was asked to release the name, a blank, and why
) ENGINE = InnoDB;

-- One row: the largest token of any row above that was removed. The tokens of a name go on
-- growing from here if its row is made again.
CREATE TABLE sqllock_floor (
    id    BIGINT NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL
) ENGINE = InnoDB;

-- One row: which server took the writes last, and when another one that has become the primary grants again, which
-- may lack what the one before has granted. That is when the longest grant has ended that there may be.
CREATE TABLE sqllock_recovery (
    id           BIGINT         NOT NULL PRIMARY KEY,
    server       VARBINARY(255) NOT NULL DEFAULT '',
    previous     VARBINARY(255) NOT NULL DEFAULT '',    -- the server before
    changes      BIGINT         NOT NULL DEFAULT 0,     -- of the server, in the latest pause
    paused_until BIGINT         NOT NULL DEFAULT 0,     -- nothing is granted before
    reason       VARBINARY(512) NOT NULL DEFAULT '',    -- why there was a pause, or none any more
    lossless     BOOLEAN        NOT NULL DEFAULT false, -- no commit is lost when another server becomes the primary
    allowed_us   BIGINT         NOT NULL DEFAULT 0,     -- whoever grants for longer raises this before
    allowed_by   VARBINARY(512) NOT NULL DEFAULT '',    -- who did
    longest_us   BIGINT         NOT NULL DEFAULT 0,     -- no grant lasts longer, nor does one from before
    longest_by   VARBINARY(512) NOT NULL DEFAULT '',    -- who wanted that
    lowered_at   BIGINT         NOT NULL DEFAULT 0      -- when allowed_us was set back
) ENGINE = InnoDB;

-- Strategy insert: a row for each name that it holds. The lease is in the name's
-- row above, where every strategy keeps it. The name is the only
-- unique key: a second one brings deadlocks to INSERT ... ON DUPLICATE KEY.
CREATE TABLE sqllock_inserts (
    name  VARBINARY(255) NOT NULL PRIMARY KEY,
    owner VARBINARY(64)  NOT NULL -- that of the name's row in sqllock_leases, or left over by a crash
) ENGINE = InnoDB;

-- Strategy forupdate: its row locks are on these rows, which nothing updates.
CREATE TABLE sqllock_mutexes (
    name VARBINARY(255) NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

-- The readers of a name: a row for each process that has it shared. It is theirs while the
-- owner of the name's lease is that of their phase, until which any other row here is left over.
CREATE TABLE sqllock_shares (
    name        VARBINARY(255)  NOT NULL,
    owner       VARBINARY(64)   NOT NULL DEFAULT '', -- random, one per acquisition
    phase       VARBINARY(64)   NOT NULL DEFAULT '', -- from the first reader's acquisition until the last one's release
    expires_at  BIGINT          NOT NULL DEFAULT 0,
    acquired_at BIGINT          NOT NULL DEFAULT 0,
    host        VARBINARY(255)  NOT NULL DEFAULT '',
    pid         BIGINT          NOT NULL DEFAULT 0,
    label       VARBINARY(255)  NOT NULL DEFAULT '',
    metadata    VARBINARY(4096) NOT NULL DEFAULT '',
    PRIMARY KEY (name, owner)
) ENGINE = InnoDB;

-- The line of each name: a row for each process that waits for it. The process keeps its
-- rows alive, all at once: they are together. Those "behind" stand in no line: they wait for another wait of their
-- process, and hold locks meanwhile.
CREATE TABLE sqllock_queue (
    process    VARBINARY(64)   NOT NULL DEFAULT '', -- random, one per locker
    id         VARBINARY(64)   NOT NULL DEFAULT '', -- random, one per wait
    name       VARBINARY(255)  NOT NULL,
    ticket     BIGINT          NOT NULL DEFAULT 0,  -- microsecond of the arrival, since 1970: the smallest is the first
    expires_at BIGINT          NOT NULL DEFAULT 0,  -- unless the process keeps it alive
    host       VARBINARY(255)  NOT NULL DEFAULT '',
    pid        BIGINT          NOT NULL DEFAULT 0,
    label      VARBINARY(255)  NOT NULL DEFAULT '',
    metadata   VARBINARY(4096) NOT NULL DEFAULT '',
    holding    VARBINARY(8192) NOT NULL DEFAULT '', -- the owners of the locks under which it waits, with blanks between
    behind     BOOLEAN         NOT NULL DEFAULT false,
    slots      BIGINT          NOT NULL DEFAULT 1,  -- how many may hold the name, as this process knows
    shared     BOOLEAN         NOT NULL DEFAULT false, -- it waits for a shared lock
    PRIMARY KEY (process, id),
    INDEX sqllock_queue_line (name, ticket)
) ENGINE = InnoDB;

-- The views act for who asks them: with the rights of who made them they would not work any more when that user is removed.

-- The protocol that a program has to speak which uses the tables. Most migrations leave it. One that changes what a row means, so that
-- an older program would break a lock, raises it, and gives the tables that it changes other names, so that such programs fail.
CREATE SQL SECURITY INVOKER VIEW sqllock_protocol AS
SELECT 1 AS protocol;

CREATE SQL SECURITY INVOKER VIEW sqllock_holders AS
SELECT CONVERT(SUBSTRING_INDEX(l.name, 0x1F, 1) USING utf8mb4) AS name,
       IF(LOCATE(0x1F, l.name) = 0, 0, CAST(CONVERT(SUBSTRING_INDEX(l.name, 0x1F, -1) USING ascii) AS UNSIGNED)) AS slot,
       CONVERT(l.strategy USING utf8mb4) AS strategy, l.token,
       CONVERT(COALESCE(s.host, l.host) USING utf8mb4) AS host, COALESCE(s.pid, l.pid) AS pid,
       CONVERT(COALESCE(s.label, l.label) USING utf8mb4) AS label, CONVERT(COALESCE(s.metadata, l.metadata) USING utf8mb4) AS metadata,
       TIMESTAMPADD(MICROSECOND, COALESCE(s.acquired_at, l.acquired_at), CAST('1970-01-01' AS DATETIME(6))) AS acquired_at,
       (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - COALESCE(s.acquired_at, l.acquired_at)) / 1000000 AS held_seconds,
       (COALESCE(s.expires_at, e.expires_at) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) / 1000000 AS remaining_seconds,
       CONVERT(COALESCE(s.owner, e.owner) USING utf8mb4) AS owner, LEFT(e.owner, 7) = 0x7368617265642D AS shared,
       LEFT(e.owner, 9) = 0x64657461636865642D AS detached
  FROM sqllock_leases e JOIN sqllock_locks l ON l.name = e.name
  LEFT JOIN sqllock_shares s ON s.name = e.name AND s.phase = e.owner AND s.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
 WHERE e.owner <> '' AND e.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
   AND (s.owner IS NOT NULL OR LEFT(e.owner, 7) <> 0x7368617265642D);

CREATE SQL SECURITY INVOKER VIEW sqllock_waiters AS
SELECT CONVERT(q.name USING utf8mb4) AS name, ROW_NUMBER() OVER (PARTITION BY q.name ORDER BY q.behind, q.ticket, q.id) AS place,
       CONVERT(q.host USING utf8mb4) AS host, q.pid, CONVERT(q.label USING utf8mb4) AS label,
       CONVERT(q.metadata USING utf8mb4) AS metadata,
       TIMESTAMPADD(MICROSECOND, q.ticket, CAST('1970-01-01' AS DATETIME(6))) AS since,
       (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - q.ticket) / 1000000 AS waited_seconds,
       q.holding <> '' AS holds_others, q.slots AS permits, q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_leases e ON e.name = q.name
 WHERE q.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND q.id <> COALESCE(e.wait, '');

-- +goose Down

-- Each commits by itself: what was broken off on the way can be begun anew. First
-- the table of which transactions have rows for as long as a lock is held.
DROP TABLE IF EXISTS sqllock_mutexes;
DROP VIEW IF EXISTS sqllock_waiters;
DROP VIEW IF EXISTS sqllock_holders;
DROP VIEW IF EXISTS sqllock_protocol;
DROP TABLE IF EXISTS sqllock_queue;
DROP TABLE IF EXISTS sqllock_shares;
DROP TABLE IF EXISTS sqllock_inserts;
DROP TABLE IF EXISTS sqllock_recovery;
DROP TABLE IF EXISTS sqllock_floor;
DROP TABLE IF EXISTS sqllock_leases;
DROP TABLE IF EXISTS sqllock_locks;
