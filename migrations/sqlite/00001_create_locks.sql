-- +goose Up

-- One row for each name, kept for a while after release. The
-- permits of a name beside the first have rows of their own, called by the name,
-- the character U+001F and the number of the slot in four digits.
-- While readers have a name its owner here begins with "shared-", and they are in sqllock_shares.
-- Names compare byte for byte (SQLite's BINARY collation, its default). Times
-- are microseconds since 1970: SQLite's clock has milliseconds.
CREATE TABLE sqllock_locks (
    name          TEXT    NOT NULL PRIMARY KEY,
    token         INTEGER NOT NULL DEFAULT 0,  -- fencing token of the last grant
    owner         TEXT    NOT NULL DEFAULT '', -- random, one per acquisition, '' = free
    strategy      TEXT    NOT NULL DEFAULT '',
    expires_at    INTEGER NOT NULL DEFAULT 0,  -- free from here on, plus the delay
    lock_delay_us INTEGER NOT NULL DEFAULT 0,
    acquired_at   INTEGER NOT NULL DEFAULT 0,
    host          TEXT    NOT NULL DEFAULT '',
    pid           INTEGER NOT NULL DEFAULT 0,
    label         TEXT    NOT NULL DEFAULT '',
    metadata      TEXT    NOT NULL DEFAULT '',
    ended         TEXT    NOT NULL DEFAULT '', -- why the last grant ended, if not by its own release
    waiting       INTEGER NOT NULL DEFAULT 0,  -- another number when a wait begins, 0 = nobody waits
    wait          TEXT    NOT NULL DEFAULT '', -- whose end was the last grant, if it was one in the line
    joins         INTEGER NOT NULL DEFAULT 0,  -- another number with each reader that comes or renews
    tick          INTEGER NOT NULL DEFAULT 0,  -- the latest point in time whose job was done
    asked         TEXT    NOT NULL DEFAULT ''  -- an owner that was asked to release the name, a blank, and why
) WITHOUT ROWID;

-- One row: the largest token of any row above that was removed. The tokens of a name go on
-- growing from here if its row is made again.
CREATE TABLE sqllock_floor (
    id    INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    token INTEGER NOT NULL
);

-- Strategy insert: a row for each name that it holds. The lease is in the name's
-- row above, where every strategy keeps it.
CREATE TABLE sqllock_inserts (
    name  TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL -- that of the name's row in sqllock_locks, or left over by a crash
) WITHOUT ROWID;

-- The readers of a name: a row for each process that has it shared. It is theirs while the
-- owner of the name's row is that of their phase, until which any other row here is left over.
CREATE TABLE sqllock_shares (
    name        TEXT    NOT NULL,
    owner       TEXT    NOT NULL DEFAULT '', -- random, one per acquisition
    phase       TEXT    NOT NULL DEFAULT '', -- from the first reader's acquisition until the last one's release
    expires_at  INTEGER NOT NULL DEFAULT 0,
    acquired_at INTEGER NOT NULL DEFAULT 0,
    host        TEXT    NOT NULL DEFAULT '',
    pid         INTEGER NOT NULL DEFAULT 0,
    label       TEXT    NOT NULL DEFAULT '',
    metadata    TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (name, owner)
) WITHOUT ROWID;

-- The line of each name: a row for each process that waits for it. The process keeps its
-- rows alive. Those "behind" stand in no line: they wait for another wait of their
-- process, and hold locks meanwhile.
CREATE TABLE sqllock_queue (
    process    TEXT    NOT NULL DEFAULT '', -- random, one per locker
    id         TEXT    NOT NULL DEFAULT '', -- random, one per wait
    name       TEXT    NOT NULL,
    ticket     INTEGER NOT NULL DEFAULT 0,  -- microsecond of the arrival, since 1970: the smallest is the first
    expires_at INTEGER NOT NULL DEFAULT 0,  -- unless the process keeps it alive
    host       TEXT    NOT NULL DEFAULT '',
    pid        INTEGER NOT NULL DEFAULT 0,
    label      TEXT    NOT NULL DEFAULT '',
    metadata   TEXT    NOT NULL DEFAULT '',
    holding    TEXT    NOT NULL DEFAULT '', -- the owners of the locks under which it waits, with blanks between
    behind     INTEGER NOT NULL DEFAULT 0,
    slots      INTEGER NOT NULL DEFAULT 1,  -- how many may hold the name, as this process knows
    shared     INTEGER NOT NULL DEFAULT 0,  -- it waits for a shared lock
    PRIMARY KEY (process, id)
) WITHOUT ROWID;

CREATE INDEX sqllock_queue_line ON sqllock_queue (name, ticket);

-- The protocol that a program has to speak which uses the tables. Most migrations leave it. One that changes what a row means, so that
-- an older program would break a lock, raises it, and gives the tables that it changes other names, so that such programs fail.
CREATE VIEW sqllock_protocol AS
SELECT 1 AS protocol;

CREATE VIEW sqllock_holders AS
SELECT CASE instr(l.name, char(31)) WHEN 0 THEN l.name ELSE substr(l.name, 1, instr(l.name, char(31)) - 1) END AS name,
       CASE instr(l.name, char(31)) WHEN 0 THEN 0 ELSE CAST(substr(l.name, instr(l.name, char(31)) + 1) AS INTEGER) END AS slot,
       l.strategy, l.token, coalesce(s.host, l.host) AS host, coalesce(s.pid, l.pid) AS pid, coalesce(s.label, l.label) AS label,
       coalesce(s.metadata, l.metadata) AS metadata,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(s.acquired_at, l.acquired_at) / 1000000.0, 'unixepoch') AS acquired_at,
       unixepoch('subsec') - coalesce(s.acquired_at, l.acquired_at) / 1000000.0                       AS held_seconds,
       coalesce(s.expires_at, l.expires_at) / 1000000.0 - unixepoch('subsec')                         AS remaining_seconds,
       coalesce(s.owner, l.owner) AS owner, substr(l.owner, 1, 7) = 'shared-' AS shared,
       substr(l.owner, 1, 9) = 'detached-' AS detached
  FROM sqllock_locks l
  LEFT JOIN sqllock_shares s ON s.name = l.name AND s.phase = l.owner AND s.expires_at > unixepoch('subsec') * 1000000
 WHERE l.owner <> '' AND l.expires_at > unixepoch('subsec') * 1000000
   AND (s.owner IS NOT NULL OR substr(l.owner, 1, 7) <> 'shared-');

CREATE VIEW sqllock_waiters AS
SELECT q.name, row_number() OVER (PARTITION BY q.name ORDER BY q.behind, q.ticket, q.id) AS place,
       q.host, q.pid, q.label, q.metadata,
       strftime('%Y-%m-%d %H:%M:%f', q.ticket / 1000000.0, 'unixepoch') AS since,
       unixepoch('subsec') - q.ticket / 1000000.0                       AS waited_seconds,
       q.holding <> ''                                                  AS holds_others,
       q.slots                                                          AS permits,
       q.shared
  FROM sqllock_queue q LEFT JOIN sqllock_locks l ON l.name = q.name
 WHERE q.expires_at > unixepoch('subsec') * 1000000 AND q.id <> coalesce(l.wait, '');

-- +goose Down

DROP VIEW IF EXISTS sqllock_waiters;
DROP VIEW IF EXISTS sqllock_holders;
DROP VIEW IF EXISTS sqllock_protocol;
DROP TABLE IF EXISTS sqllock_queue;
DROP TABLE IF EXISTS sqllock_shares;
DROP TABLE IF EXISTS sqllock_inserts;
DROP TABLE IF EXISTS sqllock_floor;
DROP TABLE IF EXISTS sqllock_locks;
