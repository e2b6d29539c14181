package moving_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	mysqldriver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	redisdriver "github.com/redis/go-redis/v9"
	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqllock/sqllock/bench/internal/servers"
	"github.com/sqllock/sqllock/bench/moving"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// programs is where server programs are unpacked, as make bench has it.
const programs = "../../.bin/programs"

// address starts a server for the test.
func address(t *testing.T, name string) string {
	t.Helper()

	set := servers.Start(t.Context(), []string{name}, programs)
	t.Cleanup(func() {
		if err := set.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})

	server, _ := set.Get(name)
	if server.Missing != "" {
		t.Fatalf("%s: %s", name, server.Missing)
	}

	return server.Address.DSN
}

// newLocker is a locker of a process of its own, on the file.
func newLocker(t *testing.T, file string) *sqllock.Locker {
	t.Helper()

	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(2000)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() })

	locker, err := sqllock.New(cas.New(sqlite.New(db)))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})

	return locker
}

// release is what one release of a program does: it holds its lock, or its locks, around the work.
type release = func(ctx context.Context, work moving.Work) error

// exclusive lets several processes of each release work, and fails if ever two do at a time.
func exclusive(ctx context.Context, releases map[string]release) error {
	const each, rounds = 3, 5

	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()

	var inside, done atomic.Int32

	work := func(ctx context.Context) error {
		defer inside.Add(-1)

		if n := inside.Add(1); n != 1 {
			return fmt.Errorf("%d work at a time", n)
		}

		select { // long enough for another to come in
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
			done.Add(1)

			return nil
		}
	}

	ended := make(chan error)

	for name, hold := range releases {
		for range each {
			go func() {
				for range rounds {
					if err := hold(ctx, work); err != nil {
						ended <- fmt.Errorf("%s: %w", name, err)

						return
					}
				}

				ended <- nil
			}()
		}
	}

	var faults []error

	for range each * len(releases) {
		if err := <-ended; err != nil {
			faults = append(faults, err)

			cancel()
		}
	}

	if got, want := int(done.Load()), each*rounds*len(releases); len(faults) == 0 && got != want {
		return fmt.Errorf("they worked %d times, want %d", got, want)
	}

	return errors.Join(faults...)
}

// beside runs releases beside each other.
func beside(t *testing.T, name string, releases map[string]release) {
	t.Helper()

	if err := exclusive(t.Context(), releases); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestExclusive shows that the check of these tests finds two at work: where there is no lock, and where the release
// between the two is left out.
func TestExclusive(t *testing.T) {
	t.Parallel()

	first, second := newLocker(t, address(t, "sqlite")), newLocker(t, address(t, "sqlite"))

	for name, releases := range map[string]map[string]release{
		"no lock": {"none": func(ctx context.Context, work moving.Work) error { return work(ctx) }},
		"two locks": {
			"old": func(ctx context.Context, work moving.Work) error { return moving.WithSQLLock(ctx, first, work) },
			"new": func(ctx context.Context, work moving.Work) error { return moving.WithSQLLock(ctx, second, work) },
		},
	} {
		if err := exclusive(t.Context(), releases); err == nil {
			t.Errorf("%s: never two worked at a time: the other tests show nothing", name)
		}
	}
}

// TestRedis runs the releases of docs/moving/redis.md beside each other.
func TestRedis(t *testing.T) {
	t.Parallel()

	client := redisdriver.NewClient(&redisdriver.Options{Addr: address(t, "redis")})
	t.Cleanup(func() { _ = client.Close() })

	file := address(t, "sqlite")
	theirs, redsyncs := redislock.New(client), redsync.New(goredis.NewPool(client))
	ours, second := newLocker(t, file), newLocker(t, file)

	old := func(ctx context.Context, work moving.Work) error { return moving.WithRedislock(ctx, theirs, work) }
	both := func(ctx context.Context, work moving.Work) error {
		return moving.WithRedisAndSQLLock(ctx, theirs, ours, work)
	}
	last := func(ctx context.Context, work moving.Work) error { return moving.WithSQLLock(ctx, second, work) }

	beside(t, "redsync", map[string]release{"redsync": func(ctx context.Context, work moving.Work) error {
		return moving.WithRedsync(ctx, redsyncs, work)
	}})
	beside(t, "first", map[string]release{"old": old, "both": both})
	beside(t, "second", map[string]release{"both": both, "new": last})
}

// TestEtcd runs the releases of docs/moving/etcd.md beside each other.
func TestEtcd(t *testing.T) {
	t.Parallel()

	client, err := etcd.New(etcd.Config{
		Endpoints: []string{address(t, "etcd")}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = client.Close() })

	file := address(t, "sqlite")
	ours, second := newLocker(t, file), newLocker(t, file)

	old := func(ctx context.Context, work moving.Work) error { return moving.WithEtcd(ctx, client, work) }
	both := func(ctx context.Context, work moving.Work) error {
		return moving.WithEtcdAndSQLLock(ctx, client, ours, work)
	}
	last := func(ctx context.Context, work moving.Work) error { return moving.WithSQLLock(ctx, second, work) }

	beside(t, "first", map[string]release{"old": old, "both": both})
	beside(t, "second", map[string]release{"both": both, "new": last})
}

// TestAdvisory runs the releases of docs/moving/by-hand.md beside each other, on PostgreSQL.
func TestAdvisory(t *testing.T) {
	t.Parallel()

	db := open(t, "pgx", environment(t, "SQLLOCK_TEST_POSTGRES"))
	file := address(t, "sqlite")
	ours, second := newLocker(t, file), newLocker(t, file)
	key := time.Now().UnixNano() // other tests may use the server

	old := func(ctx context.Context, work moving.Work) error { return moving.WithAdvisoryLock(ctx, db, key, work) }
	both := func(ctx context.Context, work moving.Work) error {
		return moving.WithBothOfTheDatabase(ctx, db, key, ours, work)
	}
	last := func(ctx context.Context, work moving.Work) error { return moving.WithSQLLock(ctx, second, work) }

	beside(t, "first", map[string]release{"old": old, "both": both})
	beside(t, "second", map[string]release{"both": both, "new": last})
}

// TestGetLock runs what docs/moving/by-hand.md has for MySQL and MariaDB.
func TestGetLock(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"SQLLOCK_TEST_MYSQL", "SQLLOCK_TEST_MARIADB"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config, err := mysqldriver.ParseDSN(environment(t, server))
			if err != nil {
				t.Fatal(err)
			}

			db := open(t, "mysql", config.FormatDSN())
			name := fmt.Sprintf("document/%d", time.Now().UnixNano())

			beside(t, "old", map[string]release{"old": func(ctx context.Context, work moving.Work) error {
				return moving.WithGetLock(ctx, db, name, work)
			}})
		})
	}
}

// TestShedLock lets processes with both locks, and those with sqllock alone, find that a job has run.
func TestShedLock(t *testing.T) {
	t.Parallel()

	db := open(t, "pgx", environment(t, "SQLLOCK_TEST_POSTGRES"))

	// A schema of this test, and one connection that is in it.
	schema := fmt.Sprintf("moving_%d", time.Now().UnixNano())
	db.SetMaxOpenConns(1)

	for _, statement := range []string{
		"CREATE SCHEMA " + schema,
		"SET search_path = " + schema,
		`CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL,
			locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}

	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
	})

	locker, ran := newLocker(t, address(t, "sqlite")), 0
	report := func(context.Context) error {
		ran++

		return nil
	}

	if err := moving.NightlyWithBoth(t.Context(), db, "go 1", locker, report); err != nil || ran != 1 {
		t.Fatalf("the first run: %v, ran %d times", err, ran)
	}

	// Another of the same release, the Java program, and the release after it.
	if err := moving.NightlyWithBoth(t.Context(), db, "go 2", locker, report); !errors.Is(err, moving.ErrShedLocked) {
		t.Errorf("a second run with both = %v, want ErrShedLocked", err)
	}

	var kept bool
	if err := db.QueryRowContext(t.Context(), `SELECT lock_until > timezone('utc', now()) + interval '9 minutes'
		FROM shedlock WHERE name = 'nightly'`).Scan(&kept); err != nil || !kept {
		t.Errorf("a Java program would find the row kept: %t, %v", kept, err)
	}

	if err := moving.Nightly(t.Context(), locker, report); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("a run with sqllock alone = %v, want ErrNotAcquired", err)
	}

	if ran != 1 {
		t.Errorf("the job ran %d times, want once", ran)
	}

	// A row that ended is taken over, and released at once if nothing keeps it.
	for _, who := range []string{"go 3", "go 4"} {
		err := moving.WithShedLock(t.Context(), db, "other", who, time.Minute, 0, report)
		if err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()

	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}

// environment is a DSN as withservers sets it.
func environment(t *testing.T, variable string) string {
	t.Helper()

	dsn := os.Getenv(variable)
	if dsn == "" {
		t.Fatalf("%s is not set: run this under %s", variable, filepath.Join(".bin", "withservers"))
	}

	return dsn
}
