package conformance_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestGuardedReads: a transaction that a guard passed in sees what the holder before
// wrote, or the guard does not pass.
func TestGuardedReads(t *testing.T) {
	t.Parallel()

	pools := map[string]func(*testing.T) (*sql.DB, databases.DB, func(*sql.Tx) databases.Tx){
		"postgres": func(t *testing.T) (*sql.DB, databases.DB, func(*sql.Tx) databases.Tx) {
			t.Helper()

			pool := stdPool(t, postgresDatabase(t, postgresConfig(t)))

			return pool, postgres.NewStd(pool), postgres.StdTx
		},
	}

	for _, server := range []string{"mysql", "mariadb"} {
		for mode, off := range map[string]bool{"": false, " without snapshot isolation": true} {
			if off && server == "mysql" {
				continue // has none to turn off
			}

			pools[server+mode] = func(t *testing.T) (*sql.DB, databases.DB, func(*sql.Tx) databases.Tx) {
				t.Helper()

				pool := snapshotPool(t, mysqlDatabase(t, mysqlConfig(t, server)), off)

				return pool, mysql.New(pool), mysql.Tx
			}
		}
	}

	for name, open := range pools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			pool, db, wrap := open(t)
			exec(t, pool, "CREATE TABLE guarded (value int)")
			exec(t, pool, "INSERT INTO guarded VALUES (0)")

			for _, strategy := range catalog.All() {
				for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
					for _, handed := range []bool{false, true} {
						guardedRead(t, pool, wrap, strategy.Make(db), level, handed)
					}
				}
			}
		})
	}
}

// snapshotPool returns a pool, of MariaDB with its snapshot isolation turned off. Older
// versions have nothing to turn off.
func snapshotPool(t *testing.T, config *driver.Config, off bool) *sql.DB {
	t.Helper()

	if off {
		var name, value string

		err := mysqlPool(t, config).QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(&name, &value)
		if err == nil {
			config.Params = map[string]string{name: "OFF"}
		}
	}

	return mysqlPool(t, config)
}

// guardedRead begins a transaction, lets the holder before write, and has the next
// guard and read in that transaction.
func guardedRead(
	t *testing.T, pool *sql.DB, wrap func(*sql.Tx) databases.Tx, strategy strategies.Strategy, level sql.IsolationLevel, handed bool,
) {
	t.Helper()

	ctx := context.WithoutCancel(t.Context())
	r := strategies.Request{Name: "guarded", Owner: uniqueName(), Lease: time.Minute, Tokens: 2}

	take := func() strategies.Grant {
		grant, err := strategy.TryAcquire(ctx, r)
		if err != nil {
			t.Fatalf("TryAcquire() = %v", err)
		}

		return grant
	}

	var grant strategies.Grant

	if handed {
		grant = take()

		if _, ok := grant.(strategies.Reserver); !ok {
			_ = grant.Release(ctx)

			return
		}
	}

	tx, err := pool.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()

	var value, latest int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM "+migrations.TableName).Scan(&value); err != nil {
		t.Fatal(err)
	}

	exec(t, pool, "UPDATE guarded SET value = value + 1")

	if reserver, ok := grant.(strategies.Reserver); ok {
		grant = reserver.Next()
	}

	if grant == nil {
		grant = take()
	}

	defer func() { _ = grant.Release(ctx) }()

	err = grant.Guard(ctx, wrap(tx))

	switch {
	case err != nil && level == sql.LevelReadCommitted:
		t.Errorf("%s, handed on %t: Guard() with READ COMMITTED = %v, want nil", strategy.Features().Strategy, handed, err)
	case err != nil:
		return
	}

	if err := tx.QueryRowContext(ctx, "SELECT value FROM guarded").Scan(&value); err != nil {
		return
	}

	if err := pool.QueryRowContext(ctx, "SELECT value FROM guarded").Scan(&latest); err != nil || value != latest {
		t.Errorf("%s, %s, handed on %t: after Guard() the transaction reads %d, want %d (%v)",
			strategy.Features().Strategy, level, handed, value, latest, err)
	}
}
