package prove_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/databases/tidb"
	"github.com/sqllock/sqllock/internal/outsider"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
)

var (
	dsnFlag  = flag.String("dsn", "", "database URL, as the command's")
	fileFlag = flag.String("dsn-file", "", "file with such a URL")
)

// Of the second process of a case: the database and the strategy.
const (
	urlVariable      = "SQLLOCK_PROVE_URL"
	strategyVariable = "SQLLOCK_PROVE_STRATEGY"
)

const (
	// conns is how many connections a pool has: as many as the cases were written for.
	conns = 12
	// tryWithin is far less than the locks beside which a try is made stay; patience is less than a lease.
	tryWithin = 8 * time.Second
	patience  = 30 * time.Second
	// lease is that of the process that is killed.
	lease = 2 * time.Second
)

// place is where the cases have their tables: a schema of PostgreSQL, a database of a MySQL server, a folder beside the
// file of SQLite. Zero if no database is named.
var place struct {
	dialect databases.Dialect
	url     string // SQLite's without the file
	undo    string // the statement, or the folder, that removes it
	target  dsn.Target
}

func TestMain(m *testing.M) {
	flag.Parse()

	if os.Getenv(urlVariable) != "" {
		holdUntilKilled()
	}

	if err := makePlace(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)

	go func() {
		<-signals
		removePlace()
		os.Exit(1)
	}()

	code := m.Run()

	removePlace()
	os.Exit(code)
}

// removal is what is said before the statement.
const removal = "after a crash, run: "

// makePlace makes a place in the database that is named, if one is.
func makePlace(ctx context.Context) (err error) {
	text := *dsnFlag

	if *fileFlag != "" {
		read, err := os.ReadFile(*fileFlag)
		if err != nil {
			return err
		}

		text = strings.TrimSpace(string(read))
	}

	if text == "" {
		return nil
	}

	if place.target, err = dsn.Parse(text); err != nil {
		return err
	}

	place.dialect = place.target.Dialect
	name := migrate.ProofPrefix + strings.ToLower(rand.Text()[:10])

	if place.dialect == databases.SQLite {
		place.url = "sqlite:"
		place.undo, err = os.MkdirTemp(filepath.Dir(place.target.Path), name)
		fmt.Println(removal + "rm -r " + place.undo)

		return err
	}

	u, err := url.Parse(text)
	if err != nil {
		return err
	}

	query, kind := u.Query(), "DATABASE"
	if place.dialect == databases.Postgres {
		kind = "SCHEMA"
		query.Set("search_path", name)
		query.Set("pool_max_conns", strconv.Itoa(conns))
		u.RawQuery = query.Encode()
	} else {
		u.Path = "/" + name
	}

	place.url, place.undo = u.String(), "DROP "+kind+" IF EXISTS "+name
	if kind == "SCHEMA" {
		place.undo += " CASCADE"
	}

	fmt.Println(removal + place.undo)

	if err := execute(ctx, "CREATE "+kind+" "+name); err != nil {
		return fmt.Errorf("make a place for the cases: %w", err)
	}

	return migrated(ctx, place.url)
}

// removePlace removes what was made.
func removePlace() {
	var err error

	switch {
	case place.url == "":
	case place.dialect == databases.SQLite:
		err = os.RemoveAll(place.undo)
	default:
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()

		err = execute(ctx, place.undo)
	}

	if err != nil {
		fmt.Fprintf(os.Stderr, "what the proof made is still there (%v); run: %s\n", err, place.undo)
	}
}

// execute runs a statement in the database that is named.
func execute(ctx context.Context, statement string) error {
	db, err := place.target.Open(ctx, false)
	if err != nil {
		return err
	}
	defer db.Close()

	_, err = db.SQL.ExecContext(ctx, statement)

	return err
}

func migrated(ctx context.Context, url string) error {
	db, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()

	_, err = migrate.Up(ctx, db)

	return err
}

// open opens a pool. Servers that sqllock refuses by their name are admitted.
func open(ctx context.Context, url string) (*dsn.Database, error) {
	target, err := dsn.Parse(url)
	if err != nil {
		return nil, err
	}

	db, err := target.Open(ctx, true)
	if err != nil {
		return nil, err
	}

	switch locks := db.Locks.(type) {
	case *postgres.DB:
		db.Locks = locks.AllowUntested()
	case *mysql.DB:
		db.Locks = locks.AllowUntested()
	}

	if target.Dialect != databases.Postgres {
		db.SQL.SetMaxOpenConns(conns)
		db.SQL.SetMaxIdleConns(conns)
	}

	return db, nil
}

func pool(t *testing.T, url string) *dsn.Database {
	t.Helper()

	db, err := open(context.WithoutCancel(t.Context()), url)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}

// fresh is the URL of a case. SQLite has one writer at a time, so each case has a file of its own there.
func fresh(t *testing.T) string {
	t.Helper()

	if place.dialect != databases.SQLite {
		return place.url
	}

	// The cases say themselves when a transaction begins to write.
	made := "sqlite:" + filepath.Join(place.undo, rand.Text()+".db") + "?_txlock=deferred"
	if err := migrated(t.Context(), made); err != nil {
		t.Fatal(err)
	}

	return made
}

// kinds are the strategies by their names.
var kinds = map[string]func(databases.DB) strategies.Strategy{
	"cas":       func(db databases.DB) strategies.Strategy { return cas.New(db) },
	"insert":    func(db databases.DB) strategies.Strategy { return insert.New(db) },
	"forupdate": func(db databases.DB) strategies.Strategy { return forupdate.New(db) },
	"advisory":  func(db databases.DB) strategies.Strategy { return advisory.New(db) },
}

// TestProve runs the suite with each strategy that the database carries.
//
//nolint:paralleltest,tparallel // one strategy after the other: leases are short, and the server may be far away
func TestProve(t *testing.T) {
	t.Parallel()

	if place.url == "" {
		t.Skip("name a database with -dsn or -dsn-file")
	}

	var works []string

	probed := pool(t, fresh(t))

	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		locker, err := sqllock.New(kinds[name](probed.Locks))
		if err == nil {
			err = locker.TryDo(t.Context(), "probe", func(context.Context, *sqllock.Lock) error { return nil })
		}

		switch {
		case err == nil:
			works = append(works, name)
		case errors.Is(err, sqllock.ErrUnsupported):
			t.Log(err)
		default:
			t.Errorf("no lock can be acquired with strategy %s: %v", name, err)
		}
	}

	for _, name := range works {
		rivals := slices.DeleteFunc(slices.Clone(works), func(other string) bool { return other == name })

		t.Run(name, func(t *testing.T) {
			t.Run("two processes", func(t *testing.T) { twoProcesses(t, name) })
			t.Run("suite", func(t *testing.T) { suite(t, name, rivals) })
		})
	}
}

func suite(t *testing.T, name string, rivals []string) {
	t.Helper()

	sqllocktest.Run(t, sqllocktest.Harness{
		New: func(t *testing.T) sqllocktest.Fixture {
			t.Helper()

			url := fresh(t)
			first, second := sqllocktest.NewFaulty(pool(t, url).Locks), sqllocktest.NewFaulty(pool(t, url).Locks)
			fixture := sqllocktest.Fixture{
				Strategy: kinds[name](first), Other: kinds[name](second), Faulty: first, OtherFaulty: second,
				Rivals: func(t *testing.T) (made []strategies.Strategy) {
					t.Helper()

					for _, rival := range rivals {
						made = append(made, kinds[rival](pool(t, url).Locks))
					}

					return made
				},
			}

			// What the account or the server does not allow beside sqllock says nothing about a lock.
			fail := func(t *testing.T, err error) { t.Helper(); t.Skip(err) }
			outsider.Outsider{DB: pool(t, url).SQL, Dialect: place.dialect, Strategy: name, Fail: fail}.Equip(&fixture, wrap)

			return fixture
		},
		Isolations:         outsider.Isolations(place.dialect),
		GuardBlocksRenewal: place.dialect == databases.SQLite,
		GuardBlocksGuard:   place.dialect == databases.TiDB,
		Statements:         outsider.Statements(name, place.dialect),
		TryWithin:          tryWithin,
		Patience:           patience,
		Rivals:             len(rivals) > 0,
	})
}

// wrap is the caller's transaction as the database's package wraps it.
func wrap(tx *sql.Tx) databases.Tx {
	switch place.dialect {
	case databases.MySQL:
		return mysql.Tx(tx)
	case databases.TiDB:
		return tidb.Tx(tx)
	case databases.SQLite:
		return sqlite.Tx(tx)
	default:
		return postgres.StdTx(tx)
	}
}

// twoProcesses has another process hold a lock, which is refused here, and had soon after that one was killed.
func twoProcesses(t *testing.T, name string) {
	t.Helper()

	url := fresh(t)

	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	other := exec.CommandContext(t.Context(), self)
	other.Env = append(os.Environ(), urlVariable+"="+url, strategyVariable+"="+name)
	other.Stderr = os.Stderr

	said, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := other.Start(); err != nil {
		t.Fatal(err)
	}

	var held int64
	if _, err := fmt.Fscan(said, &held); err != nil {
		t.Fatalf("the other process acquires nothing: %v", errors.Join(err, other.Wait()))
	}

	locker, err := sqllock.New(kinds[name](pool(t, url).Locks))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := locker.TryAcquire(t.Context(), "two processes"); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("TryAcquire() beside a process that has the lock = %v, want ErrNotAcquired", err)
	}

	_ = other.Process.Kill()
	_ = other.Wait()

	lock, err := locker.Acquire(t.Context(), "two processes", sqllock.WithMaxWait(lease+patience))
	if err != nil {
		t.Fatalf("Acquire() after the other process was killed = %v", err)
	}

	if lock.Token() <= held {
		t.Errorf("its token is %d, want more than that of the other, %d", lock.Token(), held)
	}

	if err := lock.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// holdUntilKilled is the other process.
func holdUntilKilled() {
	ctx := context.Background()

	db, err := open(ctx, os.Getenv(urlVariable))
	if err != nil {
		panic(err)
	}

	locker, err := sqllock.New(kinds[os.Getenv(strategyVariable)](db.Locks), sqllock.WithLease(lease))
	if err != nil {
		panic(err)
	}

	lock, err := locker.Acquire(ctx, "two processes")
	if err != nil {
		panic(err)
	}

	fmt.Println(lock.Token())
	<-time.After(time.Hour)
}
