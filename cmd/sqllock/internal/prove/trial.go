package prove

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/databases/tidb"
	"github.com/sqllock/sqllock/internal/outsider"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// Trial tries one strategy, in a process of its own.
type Trial struct {
	// Target is the database of the proof.
	Target dsn.Target
	// Strategy is the name of what Make makes. Rivals makes the others that work there.
	Strategy string
	Make     func(databases.DB) strategies.Strategy
	Rivals   []func(databases.DB) strategies.Strategy
	// Cases are the names of those to run.
	Cases []string
	// History is how long the history lasts. Zero is 20 seconds.
	History time.Duration
	// Edit and EditTx change what is beneath the strategy, for tests of the proof; nil changes nothing.
	Edit   func(databases.DB) databases.DB
	EditTx func(databases.Tx) databases.Tx
}

const (
	// atOnce is how many cases run at once. Most of them wait for something most of the time.
	atOnce = 6
	// tryWithin is far less than the locks beside which a try is made stay; patience is less than a lease.
	tryWithin = 8 * time.Second
	patience  = 30 * time.Second
)

// Serve runs the cases, and what package testing says of them is the standard output. It ends this process, at the
// latest when its standard input does: who started it is gone then. testing.Main is for "systems that simulate go
// test", and reads os.Args.
func (trial Trial) Serve() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)

		os.Exit(1)
	}()

	os.Args = []string{os.Args[0], "-test.v=test2json", "-test.parallel=" + strconv.Itoa(atOnce)}

	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{
		{Name: historyPrefix[:len(historyPrefix)-1], F: trial.history},
		{Name: suiteTest, F: trial.suite},
	}, nil, nil)
}

func (trial Trial) wanted(name string) bool { return slices.Contains(trial.Cases, name) }

func (trial Trial) suite(t *testing.T) {
	t.Helper()

	if !slices.ContainsFunc(sqllocktest.Cases(), trial.wanted) {
		return
	}

	dialect := trial.Target.Dialect

	var beside *sql.DB
	if dialect != databases.SQLite {
		beside = trial.open(t, trial.Target).SQL
	}

	sqllocktest.Run(t, sqllocktest.Harness{
		New: func(t *testing.T) sqllocktest.Fixture {
			t.Helper()

			return trial.fixture(t, beside)
		},
		Isolations:         outsider.Isolations(dialect),
		GuardBlocksRenewal: dialect == databases.SQLite,
		GuardBlocksGuard:   dialect == databases.TiDB,
		Statements:         outsider.Statements(trial.Strategy, dialect),
		TryWithin:          tryWithin,
		Patience:           patience,
		Only:               trial.wanted,
		Rivals:             len(trial.Rivals) > 0,
	})
}

// fixture is what one case works with. SQLite has one writer at a time, so there each case has a file of its own.
func (trial Trial) fixture(t *testing.T, beside *sql.DB) sqllocktest.Fixture {
	t.Helper()

	target := trial.own(t)
	if beside == nil {
		beside = trial.open(t, target).SQL
	}

	first, second := sqllocktest.NewFaulty(trial.locks(t, target)), sqllocktest.NewFaulty(trial.locks(t, target))
	fixture := sqllocktest.Fixture{
		Strategy: trial.Make(first), Other: trial.Make(second), Faulty: first, OtherFaulty: second,
		Rivals: func(t *testing.T) (made []strategies.Strategy) {
			t.Helper()

			for _, rival := range trial.Rivals {
				made = append(made, rival(trial.locks(t, target)))
			}

			return made
		},
	}

	o := outsider.Outsider{
		DB: beside, Dialect: target.Dialect, Strategy: trial.Strategy,
		// What the account or the server does not allow beside sqllock says nothing about a lock.
		Fail: func(t *testing.T, err error) {
			t.Helper()
			t.Skip(notSetUp + err.Error())
		},
	}
	o.Equip(&fixture, trial.tx)

	return fixture
}

// history runs one, with four lockers.
func (trial Trial) history(t *testing.T) {
	t.Helper()

	if !slices.ContainsFunc(Cases(historyPrefix), trial.wanted) {
		return
	}

	const members = 4

	target := trial.own(t)
	id := rand.Text()[:8]
	h := &history{
		lasts: cmp.Or(trial.History, historyTime),
		names: []string{"history/" + id + "/1", "history/" + id + "/2"}, db: trial.open(t, target).SQL, dialect: target.Dialect,
		wrap: func(tx *sql.Tx) strategies.Tx { return trial.tx(tx) }, statements: outsider.Statements(trial.Strategy, target.Dialect),
	}

	for i := range members {
		faulty := sqllocktest.NewFaulty(trial.locks(t, target))
		label := fmt.Sprintf("prove %s %d", id, i)
		h.members = append(h.members, &member{locker: trial.locker(t, faulty, label), faulty: faulty, label: label})
	}

	// A driver may repeat a statement that it took for lost. In a transaction that is held open it would be another.
	if !trial.Make(trial.locks(t, target)).Features().ConnectionHeld {
		h.members[members-1].faulty.Twice("*")
	}

	witness := trial.locker(t, trial.locks(t, target), "")

	defer func() { _ = witness.Close(context.WithoutCancel(t.Context())) }()

	h.run(t, witness)
	h.checks(t, trial.wanted, witness)
}

func (trial Trial) locker(t *testing.T, db databases.DB, label string) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(trial.Make(db), sqllock.WithLease(cmp.Or(trial.History, historyTime)/leasesIn), sqllock.WithLabel(label),
		sqllock.WithPoll(5*time.Millisecond, 50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}

	return locker
}

// tx is the caller's transaction as the database's package wraps it.
func (trial Trial) tx(tx *sql.Tx) databases.Tx {
	var wrapped databases.Tx

	switch trial.Target.Dialect {
	case databases.MySQL:
		wrapped = mysql.Tx(tx)
	case databases.TiDB:
		wrapped = tidb.Tx(tx)
	case databases.SQLite:
		wrapped = sqlite.Tx(tx)
	default:
		wrapped = postgres.StdTx(tx)
	}

	if trial.EditTx != nil {
		return trial.EditTx(wrapped)
	}

	return wrapped
}

// locks opens a pool for a strategy.
func (trial Trial) locks(t *testing.T, target dsn.Target) databases.DB {
	t.Helper()

	db := trial.open(t, target).Locks
	if trial.Edit != nil {
		return trial.Edit(db)
	}

	return db
}

// open opens a pool, which is closed after the case.
func (trial Trial) open(t *testing.T, target dsn.Target) *dsn.Database {
	t.Helper()

	db, err := target.Open(context.WithoutCancel(t.Context()), false)
	if err != nil {
		t.Skip(notSetUp + err.Error())
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}

// own is the target of a case: on SQLite a copy of the file that has the tables.
func (trial Trial) own(t *testing.T) dsn.Target {
	t.Helper()

	if trial.Target.Dialect != databases.SQLite {
		return trial.Target
	}

	made, err := os.ReadFile(trial.Target.Path)
	if err != nil {
		t.Fatal(err)
	}

	// Beside it, so that it is on the file system that is tried.
	file := filepath.Join(filepath.Dir(trial.Target.Path), rand.Text()+".db")
	if err := os.WriteFile(file, made, 0o600); err != nil { //nolint:gosec // the path is that of the proof's own folder
		t.Fatal(err)
	}

	t.Cleanup(func() {
		for _, behind := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(file + behind)
		}
	})

	return trial.Target.Proving(file, false)
}
