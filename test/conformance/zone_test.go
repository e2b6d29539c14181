package conformance_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestSummerTime has summer time begin in the session's time zone while a renewal waits for its rows: the lease must not grow by
// the hour that the local clock goes forward.
func TestSummerTime(t *testing.T) {
	t.Parallel()

	const lease = 8 * time.Second

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			beside := mysqlPool(t, config)

			for _, strategy := range catalog.All() {
				for kind, options := range map[string][]sqllock.LockOption{"exclusive": nil, "shared": {sqllock.WithShared()}} {
					t.Run(strategy.Name+"/"+kind, func(t *testing.T) {
						t.Parallel()

						if kind == "shared" && strategy.Name == "advisory" {
							return // it has no readers here
						}

						began := serverClock(t, beside).Add(6 * time.Second).Truncate(time.Second)
						pool := withParameters(t, config, map[string]string{"time_zone": "'" + zone(t, beside, began) + "'"}, false)
						locker, err := sqllock.New(strategy.Make(mysql.New(pool)), sqllock.WithLease(lease), sqllock.WithoutRenewal())
						if err != nil {
							t.Fatal(err)
						}

						t.Cleanup(func() { _ = locker.Close(t.Context()) })

						name := uniqueName()
						lock, err := locker.Acquire(t.Context(), name, options...)
						if err != nil {
							t.Fatal(err)
						}

						time.Sleep(began.Sub(serverClock(t, beside)) - time.Second) //nolint:forbidigo // until a time of the server
						unlock := lockRenewal(t, beside, name)
						extended := make(chan error, 1)

						go func() { extended <- lock.Extend(t.Context(), lease) }()

						time.Sleep(100 * time.Millisecond) //nolint:forbidigo // until a time of the server

						if now := serverClock(t, beside); !now.Before(began) {
							t.Fatalf("the renewal began at %s, too late for a change of the clock at %s", now, began)
						}

						time.Sleep(began.Sub(serverClock(t, beside)) + 100*time.Millisecond) //nolint:forbidigo // until a time of the server
						unlock()

						if err := <-extended; err != nil {
							t.Fatalf("Extend() beside locked rows = %v", err)
						}

						held, err := locker.Inspect(t.Context(), name)
						if err != nil || !held.Held() || held.Remaining > lease {
							t.Errorf("Inspect() = held %t for %s, %v, want at most %s", held.Held(), held.Remaining, err, lease)
						}

						var longest sql.NullInt64
						if err := beside.QueryRowContext(t.Context(), `SELECT MAX(expires_at) - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
  FROM sqllock_shares WHERE name = ?`, name).Scan(&longest); err != nil {
							t.Fatal(err)
						}

						if left := time.Duration(longest.Int64) * time.Microsecond; longest.Valid != (options != nil) || left > lease {
							t.Errorf("the reader's own lease runs for %s, want at most %s", left, lease)
						}
					})
				}
			}
		})
	}
}

// zone makes a time zone whose clock goes forward by an hour at a time, and removes it after the test.
func zone(t *testing.T, db *sql.DB, forward time.Time) string {
	t.Helper()

	name := uniqueName()

	result, err := db.ExecContext(t.Context(), `INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N')`)
	if err != nil {
		t.Fatal(err)
	}

	id, err := result.LastInsertId()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		for _, table := range []string{"time_zone_transition", "time_zone_transition_type", "time_zone_name", "time_zone"} {
			exec(t, db, "DELETE FROM mysql."+table+" WHERE Time_zone_id = ?", id)
		}
	})

	exec(t, db, `INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES (?, ?)`, name, id)
	exec(t, db, "INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) "+
		"VALUES (?, 0, 0, 0, 'W'), (?, 1, 3600, 1, 'S')", id, id)
	exec(t, db, `INSERT INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES (?, 0, 0), (?, ?, 1)`,
		id, id, forward.Unix())

	return name
}

// serverClock returns the server's time.
func serverClock(t *testing.T, db *sql.DB) time.Time {
	t.Helper()

	var now int64
	if err := db.QueryRowContext(t.Context(), `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`).Scan(&now); err != nil {
		t.Fatal(err)
	}

	return time.UnixMicro(now)
}

// lockRenewal locks the rows that a renewal changes.
func lockRenewal(t *testing.T, db *sql.DB, name string) (unlock func()) {
	t.Helper()

	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, table := range []string{"sqllock_leases", "sqllock_shares"} {
		var rows int
		if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+" WHERE name = ? FOR UPDATE", name).Scan(&rows); err != nil {
			t.Fatal(err)
		}
	}

	return func() { _ = tx.Rollback() }
}
