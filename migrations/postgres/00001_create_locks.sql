-- +goose Up

-- One row for each name, kept for a while after release. The
-- permits of a name beside the first have rows of their own, called by the name,
-- the character U+001F and the number of the slot in four digits.
-- While readers have a name its owner here begins with "shared-", and they are in sqllock_shares.
-- Names compare byte for byte (COLLATE "C"). No column that a renewal writes
-- has an index, so that updates stay heap-only and the table stays small. Half
-- of each page is left free for the next row versions. Functions have their
-- schema, so that the tables have none that another user has made in this one.
CREATE TABLE sqllock_locks (
    name          text COLLATE "C" NOT NULL PRIMARY KEY CHECK (pg_catalog.octet_length(name) BETWEEN 1 AND 255),
    token         bigint           NOT NULL DEFAULT 0,       -- fencing token of the last grant
    owner         text             NOT NULL DEFAULT '',      -- random, one per acquisition, '' = free
    strategy      text             NOT NULL DEFAULT '',
    expires_at    timestamptz      NOT NULL DEFAULT 'epoch', -- free from here on, plus the delay
    lock_delay_us bigint           NOT NULL DEFAULT 0,
    acquired_at   timestamptz      NOT NULL DEFAULT 'epoch',
    host          text             NOT NULL DEFAULT '',
    pid           bigint           NOT NULL DEFAULT 0,
    label         text             NOT NULL DEFAULT '',
    metadata      text             NOT NULL DEFAULT '',
    ended         text             NOT NULL DEFAULT '',      -- why the last grant ended, if not by its own release
    waiting       bigint           NOT NULL DEFAULT 0,       -- another number with each wait that begins, 0 = nobody waits
    joins         bigint           NOT NULL DEFAULT 0,       -- another number with each reader that comes or renews
    tick          bigint           NOT NULL DEFAULT 0,       -- the latest point in time whose job was done
    asked         text             NOT NULL DEFAULT ''       -- an owner that was asked to release the name, a blank, and why
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- One row: the largest token of any row above that was removed. The tokens of a name go on
-- growing from here if its row is made again.
CREATE TABLE sqllock_floor (
    id    bigint NOT NULL PRIMARY KEY CHECK (id = 1),
    token bigint NOT NULL
);

-- One row: which server took the writes last, and when another one that has become the primary grants again, which
-- may lack what the one before has granted. That is when the longest grant has ended that there may be.
CREATE TABLE sqllock_recovery (
    id           bigint      NOT NULL PRIMARY KEY CHECK (id = 1),
    server       text        NOT NULL DEFAULT '',
    run          text        NOT NULL DEFAULT '',      -- that of sqllock_run, if grants commit asynchronously
    crashed      boolean     NOT NULL DEFAULT false,   -- the latest pause is of a crash, too
    previous     text        NOT NULL DEFAULT '',      -- the server before
    changes      bigint      NOT NULL DEFAULT 0,       -- of the server, in the latest pause
    paused_until timestamptz NOT NULL DEFAULT 'epoch', -- nothing is granted before
    reason       text        NOT NULL DEFAULT '',      -- why there was a pause, or none any more
    lossless     boolean     NOT NULL DEFAULT false,   -- no commit is lost when another server becomes the primary
    allowed_us   bigint      NOT NULL DEFAULT 0,       -- whoever grants for longer raises this before
    allowed_by   text        NOT NULL DEFAULT '',      -- who did
    longest_us   bigint      NOT NULL DEFAULT 0,       -- no grant lasts longer, nor does one from before
    longest_by   text        NOT NULL DEFAULT '',      -- who wanted that
    lowered_at   timestamptz NOT NULL DEFAULT 'epoch'  -- when allowed_us was set back
);

-- One row, if grants commit asynchronously, which a crash of the server removes, and with it possibly grants.
CREATE UNLOGGED TABLE sqllock_run (
    id  bigint NOT NULL PRIMARY KEY CHECK (id = 1),
    run text   NOT NULL -- random
);

-- Strategy insert: a row for each name that it holds. The lease is in the name's
-- row above, where every strategy keeps it.
CREATE TABLE sqllock_inserts (
    name  text COLLATE "C" NOT NULL PRIMARY KEY CHECK (pg_catalog.octet_length(name) BETWEEN 1 AND 255),
    owner text             NOT NULL -- that of the name's row in sqllock_locks, or left over by a crash
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Strategy forupdate: its row locks are on these rows, which nothing updates.
CREATE TABLE sqllock_mutexes (
    name text COLLATE "C" NOT NULL PRIMARY KEY CHECK (pg_catalog.octet_length(name) BETWEEN 1 AND 255)
);

-- The readers of a name: a row for each process that has it shared. It is theirs while the
-- owner of the name's row is that of their phase, until which any other row here is left over.
CREATE TABLE sqllock_shares (
    name        text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(name) BETWEEN 1 AND 255),
    owner       text             NOT NULL DEFAULT '',      -- random, one per acquisition
    phase       text             NOT NULL DEFAULT '',      -- from the first reader's acquisition until the last one's release
    expires_at  timestamptz      NOT NULL DEFAULT 'epoch',
    acquired_at timestamptz      NOT NULL DEFAULT 'epoch',
    host        text             NOT NULL DEFAULT '',
    pid         bigint           NOT NULL DEFAULT 0,
    label       text             NOT NULL DEFAULT '',
    metadata    text             NOT NULL DEFAULT '',
    PRIMARY KEY (name, owner)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The line of each name: a row for each process that waits for it. The process keeps its
-- rows alive. Those "behind" stand in no line: they wait for another wait of their
-- process, and hold locks meanwhile.
CREATE TABLE sqllock_queue (
    process    text             NOT NULL DEFAULT '',      -- random, one per locker
    id         text             NOT NULL DEFAULT '',      -- random, one per wait
    name       text COLLATE "C" NOT NULL CHECK (pg_catalog.octet_length(name) BETWEEN 1 AND 255),
    ticket     bigint           NOT NULL DEFAULT 0,       -- microsecond of the arrival, since 1970: the smallest is the first
    expires_at timestamptz      NOT NULL DEFAULT 'epoch', -- unless the process keeps it alive
    host       text             NOT NULL DEFAULT '',
    pid        bigint           NOT NULL DEFAULT 0,
    label      text             NOT NULL DEFAULT '',
    metadata   text             NOT NULL DEFAULT '',
    holding    text             NOT NULL DEFAULT '',      -- the owners of the locks under which it waits, with blanks between
    behind     boolean          NOT NULL DEFAULT false,
    slots      bigint           NOT NULL DEFAULT 1,       -- how many may hold the name, as this process knows
    shared     boolean          NOT NULL DEFAULT false,   -- it waits for a shared lock
    PRIMARY KEY (process, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE INDEX sqllock_queue_line ON sqllock_queue (name, ticket, id);

-- The protocol that a program has to speak which uses the tables. Most migrations leave it. One that changes what a row means, so that
-- an older program would break a lock, raises it, and gives the tables that it changes other names, so that such programs fail.
CREATE VIEW sqllock_protocol AS
SELECT 1::bigint AS protocol;

CREATE VIEW sqllock_holders AS
SELECT pg_catalog.split_part(l.name, pg_catalog.chr(31), 1) AS name,
       coalesce(nullif(pg_catalog.split_part(l.name, pg_catalog.chr(31), 2), ''::pg_catalog.text), '0'::pg_catalog.text)::integer AS slot,
       l.strategy, l.token, coalesce(s.host, l.host) AS host, coalesce(s.pid, l.pid) AS pid, coalesce(s.label, l.label) AS label,
       coalesce(s.metadata, l.metadata) AS metadata, coalesce(s.acquired_at, l.acquired_at) AS acquired_at,
       extract(epoch FROM pg_catalog.clock_timestamp() - coalesce(s.acquired_at, l.acquired_at))::numeric(20, 6) AS held_seconds,
       extract(epoch FROM coalesce(s.expires_at, l.expires_at) - pg_catalog.clock_timestamp())::numeric(20, 6)  AS remaining_seconds,
       coalesce(s.owner, l.owner) AS owner, pg_catalog.starts_with(l.owner, 'shared-') AS shared,
       pg_catalog.starts_with(l.owner, 'detached-') AS detached
  FROM sqllock_locks l
  LEFT JOIN sqllock_shares s ON s.name = l.name AND s.phase = l.owner AND s.expires_at > pg_catalog.clock_timestamp()
 WHERE l.owner <> '' AND l.expires_at > pg_catalog.clock_timestamp()
   AND (s.owner IS NOT NULL OR NOT pg_catalog.starts_with(l.owner, 'shared-'));

CREATE VIEW sqllock_waiters AS
SELECT q.name, pg_catalog.row_number() OVER (PARTITION BY q.name ORDER BY q.behind, q.ticket, q.id) AS place,
       q.host, q.pid, q.label, q.metadata, pg_catalog.to_timestamp(q.ticket::float / 1000000::float) AS since,
       (extract(epoch FROM pg_catalog.clock_timestamp()) - q.ticket::numeric / 1000000::numeric)::numeric(20, 6) AS waited_seconds,
       q.holding <> '' AS holds_others, q.slots AS permits, q.shared
  FROM sqllock_queue q
 WHERE q.expires_at > pg_catalog.clock_timestamp();

-- +goose Down

DROP VIEW IF EXISTS sqllock_waiters;
DROP VIEW IF EXISTS sqllock_holders;
DROP VIEW IF EXISTS sqllock_protocol;
DROP TABLE IF EXISTS sqllock_queue;
DROP TABLE IF EXISTS sqllock_shares;
DROP TABLE IF EXISTS sqllock_mutexes;
DROP TABLE IF EXISTS sqllock_inserts;
DROP TABLE IF EXISTS sqllock_run;
DROP TABLE IF EXISTS sqllock_recovery;
DROP TABLE IF EXISTS sqllock_floor;
DROP TABLE IF EXISTS sqllock_locks;
