package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/forupdate"
)

// TestSessionGoneBeforeItsRecord: the session of an attempt has ended when its lease is written down, and nobody has
// asked for the lock meanwhile. Then there is no lock, and nothing is written.
func TestSessionGoneBeforeItsRecord(t *testing.T) {
	t.Parallel()

	endPostgres := "SELECT pg_catalog.pg_terminate_backend(pid, 5000)::int FROM pg_stat_activity" +
		" WHERE application_name = 'sqllock:first' AND datname = current_database()"

	t.Run("pgxpool", func(t *testing.T) {
		t.Parallel()

		config := postgresDatabase(t, postgresConfig(t))
		sessionGone(t, stdPool(t, config), pgxPool(t, config, pgx.QueryExecModeCacheStatement), endPostgres, "pgxpool")
	})
	t.Run("stdlib", func(t *testing.T) {
		t.Parallel()

		config := postgresDatabase(t, postgresConfig(t))
		sessionGone(t, stdPool(t, config), postgres.NewStd(stdPool(t, config)), endPostgres, "stdlib")
	})

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			sessionGone(t, mysqlPool(t, config), mysql.New(mysqlPool(t, config)), "", server)
		})
	}
}

func sessionGone(t *testing.T, db *sql.DB, pool databases.DB, end, name string) {
	t.Helper()

	faulty := sqllocktest.NewFaulty(pool)
	strategy := forupdate.New(faulty)
	request := func(owner string) strategies.Request {
		return strategies.Request{Name: name, Owner: owner, Lease: time.Minute}
	}

	// The name's rows are there.
	before, err := single.TryAcquire(t.Context(), strategy, request("before"))
	if err != nil {
		t.Fatal(err)
	}

	if err := before.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	reached, resume := faulty.Pause("grant.acquire", sqllocktest.Before)
	attempted := make(chan error, 1)

	go func() {
		_, err := single.TryAcquire(t.Context(), strategy, request("first"))
		attempted <- err
	}()

	<-reached
	endSession(t, db, end)
	resume()

	if err := <-attempted; err == nil || errors.Is(err, strategies.ErrNotAcquired) {
		t.Errorf("TryAcquire() whose session has ended = %v, want the error of its connection", err)
	}

	status, _, err := strategy.Status(t.Context(), name)
	if err != nil || status.Token != before.Token {
		t.Errorf("Status() = token %d, %v, want %d, that of the grant before", status.Token, err, before.Token)
	}

	next, err := single.TryAcquire(t.Context(), strategy, request("next"))
	if err != nil {
		t.Fatalf("TryAcquire() by the next = %v, want the lock", err)
	}

	if err := next.Release(t.Context()); err != nil {
		t.Error(err)
	}

	if misuse := faulty.Misuse(); len(misuse) > 0 {
		t.Errorf("connections: %q", misuse)
	}
}

// endSession ends the session of owner first, and waits until its row lock has.
func endSession(t *testing.T, db *sql.DB, end string) {
	t.Helper()

	if end != "" {
		var ended int
		if err := db.QueryRowContext(t.Context(), end).Scan(&ended); err != nil || ended != 1 {
			t.Fatalf("ended %d sessions, %v, want that of the attempt", ended, err)
		}

		return
	}

	var id sql.NullInt64

	const used = "SELECT IS_USED_LOCK('sqllock:first')"
	if err := db.QueryRowContext(t.Context(), used).Scan(&id); err != nil || !id.Valid {
		t.Fatalf("%s = %v, %v, want the session of the attempt", used, id, err)
	}

	if _, err := db.ExecContext(t.Context(), fmt.Sprintf("KILL %d", id.Int64)); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	for id.Valid {
		if err := db.QueryRowContext(ctx, used).Scan(&id); err != nil {
			t.Fatalf("the session goes on after KILL: %v", err)
		}
	}
}

// TestGrantOfSessionIsNotAwaitedOnDisk: a crash of the server ends a session's lock, so its record need not be on disk
// when the acquisition returns. Only the token has to be where the clock would not give a larger one.
func TestGrantOfSessionIsNotAwaitedOnDisk(t *testing.T) {
	t.Parallel()

	config := postgresDatabase(t, postgresConfig(t))
	db := stdPool(t, config)
	strategy := forupdate.New(pgxPool(t, config, pgx.QueryExecModeCacheStatement))

	// What the commit of each acquisition goes by.
	if _, err := db.ExecContext(t.Context(), `
CREATE TABLE commits (token bigint, synchronous_commit text);
CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO commits VALUES (NEW.token, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE TRIGGER note_commit AFTER UPDATE ON sqllock_locks FOR EACH ROW WHEN (NEW.owner = 'owner' AND OLD.owner = '') EXECUTE FUNCTION note_commit()`,
	); err != nil {
		t.Fatal(err)
	}

	durable := func() (token int64, setting string) {
		grant, err := single.TryAcquire(t.Context(), strategy, strategies.Request{Name: "name", Owner: "owner", Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}

		if err := grant.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		err = db.QueryRowContext(t.Context(), "SELECT synchronous_commit FROM commits WHERE token = $1", grant.Token).Scan(&setting)
		if err != nil {
			t.Fatal(err)
		}

		return grant.Token, setting
	}

	first, setting := durable()
	if setting != "off" {
		t.Errorf("an acquisition commits with synchronous_commit = %s, want off", setting)
	}

	// Another row of the table says nothing of this one.
	if _, err := db.ExecContext(t.Context(), "INSERT INTO sqllock_locks (name, token) VALUES ('other', $1)", first); err != nil {
		t.Fatal(err)
	}

	ahead := first + time.Hour.Microseconds()
	if _, err := db.ExecContext(t.Context(), "UPDATE sqllock_locks SET token = $1 WHERE name = 'name'", ahead); err != nil {
		t.Fatal(err)
	}

	if token, setting := durable(); token != ahead+1 || setting != "on" {
		t.Errorf("an acquisition with token %d commits with synchronous_commit = %s, want %d and on", token, setting, ahead+1)
	}
}
