package insert

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/internal/grants"
)

var _ strategies.Batcher = (*Strategy)(nil)

// Records and rows of many names change together on PostgreSQL and SQLite. On MySQL they change in steps that each commit by
// themselves, as for one name.

// TryAcquireAll takes the records that are free and makes their rows, in as many
// statements as for one name.
func (s *Strategy) TryAcquireAll(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return s.store.TryAcquireAll(ctx, requests)
}

// RenewAll renews grants in one statement.
func (s *Strategy) RenewAll(ctx context.Context, held []strategies.Grant, lease time.Duration) []error {
	return s.store.RenewAll(ctx, held, lease)
}

// ReleaseAll deletes the rows of grants and frees their records.
func (s *Strategy) ReleaseAll(ctx context.Context, held []strategies.Grant) []error {
	return s.store.ReleaseAll(ctx, held)
}

// with is what package grants sends about many grants, with what is different here.
func with(batch grants.Batch, change func(*grants.Batch)) *grants.Batch {
	change(&batch)

	return &batch
}

// postgresBatch does all in one statement, as for one name.
var postgresBatch = with(grants.PostgresBatch, func(b *grants.Batch) {
	b.Acquire = grants.PostgresAcquireAll("insert.acquire-all", postgresPresent+postgresReleasable, "present")

	// A record whose row somebody has locked is not freed here.
	b.Release = grants.PostgresReleaseAll("insert.release-all", `
      JOIN sqllock_inserts i ON i.name = l.name AND i.owner = l.owner`, `
       FOR UPDATE OF i SKIP LOCKED`, `, gone AS (
    DELETE FROM sqllock_inserts i USING ours WHERE i.name = ours.name
)`)
})

// postgresPresent are the parts between the locked records and their change: see acquire, which has the reasons.
const postgresPresent = `, left_over AS MATERIALIZED (
    SELECT i.name, free.owner FROM free JOIN sqllock_inserts i ON i.name = free.name FOR UPDATE OF i SKIP LOCKED
), missing AS MATERIALIZED (
    SELECT free.name, free.owner FROM free WHERE NOT EXISTS (SELECT 1 FROM sqllock_inserts i WHERE i.name = free.name)
), replaced AS (
    UPDATE sqllock_inserts i SET owner = left_over.owner FROM left_over WHERE i.name = left_over.name
    RETURNING i.owner
), added AS (
    INSERT INTO sqllock_inserts (name, owner)
    SELECT missing.name, missing.owner FROM missing WHERE (SELECT ` + grants.PostgresBriefly + `) ORDER BY missing.name
        ON CONFLICT DO NOTHING
    RETURNING owner
), present AS MATERIALIZED (
    SELECT free.name, free.owner, free.id FROM free JOIN (SELECT owner FROM replaced UNION ALL SELECT owner FROM added) made ON made.owner = free.owner
)`

// mysqlBatch are steps, as for one name. Of what is left over none is deleted before: it is replaced when the row is made. The rows
// are made in the order of their names.
var mysqlBatch = with(grants.MySQLBatch, func(b *grants.Batch) {
	b.State = databases.Statement{
		Name: "insert.look-all",
		SQL: `SELECT l.name, COALESCE(i.owner, ''), e.owner, l.token, e.ended, e.expires_at - ` + grants.MySQLNow + `, l.lock_delay_us,
       l.host, l.pid, l.label, l.metadata, e.waiting
  FROM ` + grants.MySQLOwners + ` STRAIGHT_JOIN sqllock_locks l FORCE INDEX (PRIMARY) ON l.name = a.name STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = l.name
  LEFT JOIN sqllock_inserts i FORCE INDEX (PRIMARY) ON i.name = l.name`,
		Args: []string{"calls"},
	}
	b.Rows = &grants.Rows{
		Make: databases.Statement{
			Name: "insert.insert-all",
			SQL: `INSERT INTO sqllock_inserts (name, owner)
SELECT ours.name, ours.owner FROM (
    SELECT e.name, e.owner FROM ` + grants.MySQLOwners + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name
     WHERE e.owner = a.owner
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) ours ORDER BY ours.name
    ON DUPLICATE KEY UPDATE owner = ours.owner`,
			Args: []string{"calls"},
		},
		Delete: databases.Statement{
			Name: "insert.gone-all",
			SQL: `DELETE i FROM (
    SELECT i.name FROM ` + grants.MySQLOwners + ` STRAIGHT_JOIN sqllock_leases e FORCE INDEX (PRIMARY) ON e.name = a.name AND e.owner = a.owner
    STRAIGHT_JOIN sqllock_inserts i FORCE INDEX (PRIMARY) ON i.name = e.name
     WHERE i.owner = a.owner
     LIMIT 1000 FOR UPDATE SKIP LOCKED
) gone
STRAIGHT_JOIN sqllock_inserts i FORCE INDEX (PRIMARY) ON i.name = gone.name`,
			Args: []string{"calls"},
		},
	}
})

// sqliteBatch is a transaction, as for one name.
var sqliteBatch = with(grants.SQLiteBatch, func(b *grants.Batch) {
	b.Rows = &grants.Rows{
		Begin: databases.Statement{Name: "insert.begin", SQL: `BEGIN IMMEDIATE`},
		Make: databases.Statement{
			Name: "insert.insert-all",
			SQL: `WITH ` + grants.SQLiteAsked + `
INSERT INTO sqllock_inserts (name, owner)
SELECT l.name, l.owner FROM asked a JOIN sqllock_locks l ON l.name = a.name AND l.owner = a.owner WHERE true
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner`,
			Args: []string{"calls"},
		},
		Delete: databases.Statement{
			Name: "insert.gone-all",
			SQL:  `DELETE FROM sqllock_inserts WHERE (name, owner) IN (SELECT value ->> 'name', value ->> 'owner' FROM json_each(?1))`,
			Args: []string{"calls"},
		},
	}
})
