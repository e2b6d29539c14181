package failover_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/edited"
	"github.com/sqllock/sqllock/test/servers"
)

// enoughCrashes are more than anything known to be broken needs to be caught. A slice of them may not do.
const enoughCrashes = 30

// TestCrashedGrants crashes PostgreSQL again and again, whose grants commit asynchronously: it forgets what it has acknowledged last.
// Beside those who lock as they should, each in a database of their own, are those who do it wrong, and have to be caught.
// SQLLOCK_TEST_FAILOVERS says how often.
func TestCrashedGrants(t *testing.T) {
	t.Parallel()

	times := howOften(t)
	server := startCrashing(t)
	f := newFleet(t, "postgres", times, server)
	table := heading()

	asynchronous := sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: true})
	ahead := want{kind: "ahead", durable: true}

	server.create(t, "good")

	for _, s := range leased {
		f.join(t, &team{strategy: s, witness: f.witness, wants: append(slices.Clone(wants), ahead), survives: true},
			func() databases.DB { return f.connect(t, "good") }, asynchronous)
	}

	breaches := newBreaches()

	for i, b := range breaches {
		name := fmt.Sprint("breach", i)
		server.create(t, name)

		for _, s := range b.strategies {
			f.join(t, &team{strategy: s, witness: b.witness, wants: b.wants, survives: true},
				func() databases.DB { return edited.DB(f.connect(t, name), b.change) },
				asynchronous, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
		}
	}

	// Also if a round ends the test.
	defer func() {
		table += f.witness.table("postgres")

		for _, b := range breaches {
			table += b.witness.table(b.name)

			switch {
			case b.caught():
			case f.failOvers < enoughCrashes: // a busy machine takes so long to start again that there is nothing to catch
				t.Logf("%q was not caught in %d crashes", b.name, f.failOvers)
			default:
				t.Errorf("%q was not caught in %d crashes", b.name, f.failOvers)
			}
		}

		t.Log("\n" + table)
		f.report(t)

		if f.failOvers >= enoughCrashes {
			f.reportSome(t)
		}
	}()

	uncaught := func(b *breach) bool { return !b.caught() }
	atMost := times

	if times > enoughFailOvers {
		atMost = enoughCrashes
	}

	for number := 1; f.failOvers < times || f.failOvers < atMost && slices.ContainsFunc(breaches, uncaught); number++ {
		f.round(t, number)
	}

	wantNoPause(t, f, server)
}

// TestStandbyAway: who gives up waiting for a synchronous standby leaves a commit that only this server has, and others see it.
func TestStandbyAway(t *testing.T) {
	t.Parallel()

	server := startCrashing(t)
	server.create(t, "away")
	beside := open(t, server.dsn("away"))

	exec(t, beside, "ALTER SYSTEM SET synchronous_standby_names = 'away'")
	exec(t, beside, "SELECT pg_reload_conf()")
	do(t, "wait until commits wait", func(ctx context.Context) error { return awaitWaiting(ctx, beside) })

	for _, s := range leased {
		for i := range 2 {
			locker, err := sqllock.New(s.Make(postgres.NewStd(open(t, server.dsn("away")))), sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: true}))
			if err != nil {
				t.Fatal(err)
			}

			if _, err := locker.TryAcquire(t.Context(), s.Name); !errors.Is(err, sqllock.ErrUnreachable) {
				t.Errorf("TryAcquire %d of %s = %v, want ErrUnreachable: the standby does not know that grants commit asynchronously", i, s.Name, err)
			}
		}
	}
}

// awaitWaiting is for a server that was told of a standby that is not there: until its checkpointer has read that, commits
// do not wait (PostgreSQL 17.12).
func awaitWaiting(ctx context.Context, db *sql.DB) error {
	commit := func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()

		_, err := db.ExecContext(ctx, "SELECT pg_logical_emit_message(true, '', '')")

		return err
	}

	for ctx.Err() == nil {
		if commit() != nil {
			return ctx.Err()
		}

		pause(ctx, pace)
	}

	return ctx.Err()
}

// wantNoPause is for a restart without a crash.
func wantNoPause(t *testing.T, f *fleet, server *crashing) {
	t.Helper()

	m := f.teams[0]
	held := mustAcquire(t, m.holder, "held", sqllock.WithLease(outlastsAll))

	do(t, "shut down", func(ctx context.Context) error { return server.Shutdown(ctx, "postgres") })
	do(t, "restart", func(ctx context.Context) error { return server.Restart(ctx, "postgres") })
	f.address.move(f.where(t, server.StandbyDSN()))

	do(t, "acquire", func(ctx context.Context) error {
		for {
			lock, err := m.rival.TryAcquire(ctx, "free")
			if err == nil {
				return lock.Release(ctx)
			}

			if errors.Is(err, sqllock.ErrRecovering) || !pause(ctx, pace) {
				return err
			}
		}
	})

	wantHeld(t, m.rival, "held", held.Token())

	if err := held.Release(t.Context()); err != nil {
		t.Errorf("Release() after a restart = %v, want nil", err)
	}
}

// breach is a way to lock that is known to be broken: what is sent to the database is changed.
type breach struct {
	name       string
	strategies []strategy
	wants      []want
	edits      []edit
	fault      string // what the witness has to say of it, if it is not that there is a second holder
	witness    *witness
}

type edit struct{ this, by string }

const (
	sameRun   = `v\.run = coalesce\(\(SELECT r\.run FROM sqllock_run r WHERE r\.id = 1::bigint\), ''::pg_catalog\.text\)`
	unlogged  = `EXISTS \(SELECT 1 FROM pg_catalog\.pg_class c WHERE .*? = 'u'::pg_catalog\.text\)`
	microsNow = `\(pg_catalog\.date_part\('epoch', pg_catalog\.clock_timestamp\(\)\) \* 1000000::float\)::bigint`
)

func newBreaches() []*breach {
	all := []*breach{
		{name: "no pause", strategies: leased, wants: wants, edits: []edit{{sameRun, `true`}}},
		{name: "client's clock", strategies: leased[:1], wants: wants[:1], edits: []edit{
			{`v\.paused_until <= pg_catalog\.clock_timestamp\(\)`, `v.paused_until <= pg_catalog.clock_timestamp() + interval '1 minute'`},
		}},
		// The crash comes between the two.
		{name: "raised late", strategies: leased[:1], wants: wants[:1], edits: []edit{
			{`v\.allowed_us >= (\$\d+::bigint)`, `$1 IS NOT NULL`},
			{`greatest\(v\.longest_us, (\$\d+::bigint)\)`, `greatest(v.longest_us, least(0::bigint, ${1}))`},
			{`(\$\d+::bigint), (\$\d+::pg_catalog\.text), (\$\d+::bigint)`, `${1}, ${2}, least(0::bigint, ${3})`},
		}},
		{name: "no run noted", strategies: leased[:1], wants: wants[:1], edits: []edit{
			{`\(pg_catalog\.concat\((\$\d+::boolean)\) = 'f'::pg_catalog\.text OR v\.run <> '' AND ` + sameRun + ` AND ` + unlogged + `\)`, `$1 IS NOT NULL`},
			{`(INSERT INTO sqllock_run .*\s+WHERE )`, `${1}false AND `},
		}},
		{
			name: "token not kept", strategies: leased[:1], wants: []want{{kind: "ahead"}}, fault: "token",
			edits: []edit{{`l\.token \+ (\$\d+::bigint) <= ` + microsNow, `$1 IS NOT NULL`}},
		},
	}

	for _, b := range all {
		b.witness = newWitness()
	}

	return all
}

func (b *breach) change(stmt databases.Statement, v databases.Values) (databases.Statement, databases.Values) {
	for _, e := range b.edits {
		stmt.SQL = regexp.MustCompile(e.this).ReplaceAllString(stmt.SQL, e.by)
	}

	return stmt, v
}

func (b *breach) caught() bool {
	if b.fault == "" {
		return b.witness.sum().seconds > 0
	}

	return slices.ContainsFunc(b.witness.faults, func(fault string) bool { return strings.Contains(fault, b.fault) })
}

// crashing is a PostgreSQL server that forgets what it need not have on disk yet.
type crashing struct {
	*servers.Set
	databases []string
	crashes   int
}

func startCrashing(t *testing.T) *crashing {
	t.Helper()

	if !slices.Contains(servers.Names(), "postgres") {
		t.Skip("SQLLOCK_TEST_DATABASES leaves out postgres")
	}

	set, err := servers.StartOwn(t.Context(), []string{"postgres"}, t.Output())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Errorf("Close() of the server = %v, want nil", err)
		}
	})

	c := &crashing{Set: set}
	db := open(t, c.PrimaryDSN())

	// Whatever writes the log by the way.
	for _, setting := range []string{
		"wal_writer_delay='10s'", "wal_writer_flush_after='1GB'", "autovacuum=off", "checkpoint_timeout='1h'", "bgwriter_lru_maxpages=0",
	} {
		exec(t, db, "ALTER SYSTEM SET "+setting)
	}

	exec(t, db, "SELECT pg_reload_conf()")

	return c
}

// create makes a database with sqllock's tables.
func (c *crashing) create(t *testing.T, name string) {
	t.Helper()

	exec(t, open(t, c.PrimaryDSN()), "CREATE DATABASE "+name)
	migrate(t, open(t, c.dsn(name)), databases.Postgres)

	c.databases = append(c.databases, name)
}

func (c *crashing) dsn(database string) string {
	dsn, _ := url.Parse(c.PrimaryDSN())
	dsn.Path = database

	return dsn.String()
}

func (c *crashing) PrimaryDSN() string { return c.DSN("postgres") }
func (c *crashing) StandbyDSN() string { return c.DSN("postgres") }

// CaughtUp commits something that waits for the disk: tokens that are ahead of the clock.
func (c *crashing) CaughtUp(ctx context.Context) error {
	for _, name := range c.databases {
		err := c.in(ctx, name, `INSERT INTO sqllock_locks (name, token, acquired_at)
SELECT s || '/known/ahead', (extract(epoch FROM now() + interval '1 day') * 1000000)::bigint, now() FROM unnest('{cas,insert}'::text[]) s
    ON CONFLICT (name) DO UPDATE SET token = greatest(excluded.token, sqllock_locks.token + 1)`)
		if err != nil {
			return err
		}
	}

	return nil
}

func (c *crashing) in(ctx context.Context, database, statement string) error {
	conn, err := pgx.Connect(ctx, c.dsn(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))

	_, err = conn.Exec(ctx, statement)

	return err
}

func (*crashing) Cut(context.Context) error     { return nil }
func (*crashing) Prepare(context.Context) error { return nil }
func (*crashing) Succeed(context.Context) error { return nil }

// Crash ends the server, or one of its processes: then it ends all of them itself, and begins anew.
func (c *crashing) Crash(ctx context.Context) error {
	c.crashes++

	if c.crashes%2 == 0 {
		return c.Set.Crash(ctx, "postgres")
	}

	var refused *pgconn.ConnectError

	err := c.in(ctx, c.databases[0], "COPY (SELECT 1) TO PROGRAM 'kill -KILL $PPID'")
	if err == nil || errors.As(err, &refused) {
		return fmt.Errorf("nothing was killed: %w", err)
	}

	return nil
}

func (c *crashing) Promote(ctx context.Context) error {
	if c.crashes%2 != 0 {
		return nil
	}

	return c.Restart(ctx, "postgres")
}
