// Package conformance runs the conformance suite for every strategy on every
// database and driver mode. make test brings up the servers.
package conformance_test

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
	"github.com/sqllock/sqllock/test/schema"
	"github.com/sqllock/sqllock/test/servers"
)

// suited returns the strategies of a mode. Those that hold a connection neither
// batch, nor hand on, nor listen, so that they are always plain.
func suited(plain bool) []catalog.Strategy {
	if plain {
		return catalog.Leased()
	}

	return catalog.All()
}

// part are the cases that a mode of a driver runs with a strategy, by their numbers. The first mode of a database runs all
// of them: what differs with the mode, how values are bound and errors told, each of the statements shows. So the others
// divide the cases among the strategies, and with -short run a few. With SQLLOCK_TEST_ALL=1 each runs all.
func part(mode, strategy int) func(name string) bool {
	parts := 3
	if testing.Short() {
		parts = 12
	}

	return func(name string) bool {
		if mode == 0 || os.Getenv("SQLLOCK_TEST_ALL") == "1" {
			return true
		}

		sum := fnv.New32a()
		_, _ = sum.Write([]byte(name))

		return (int(sum.Sum32())+mode+strategy)%parts == 0
	}
}

// rivals makes the other strategies, each on a database of its own.
func rivals(t *testing.T, name string, open func() databases.DB) (made []strategies.Strategy) {
	t.Helper()

	for _, rival := range catalog.Rivals(open().Dialect(), name) {
		made = append(made, rival.Make(open()))
	}

	return made
}

// dsn returns the DSN of a database's server. A test of a database that is
// left out of SQLLOCK_TEST_DATABASES is skipped; one that is not and has no
// server fails.
func dsn(t *testing.T, name string) string {
	t.Helper()

	wanted := os.Getenv("SQLLOCK_TEST_DATABASES")
	if wanted == "" {
		wanted = "postgres,mysql,mariadb,sqlite"
	}

	if !slices.Contains(strings.Split(wanted, ","), name) {
		t.Skipf("SQLLOCK_TEST_DATABASES=%s leaves %s out", wanted, name)
	}

	if name == "sqlite" {
		return ""
	}

	value := os.Getenv(servers.Variable(name))
	if value == "" {
		t.Fatalf("no server for %s: run make test, or set %s to its DSN, or leave it out of SQLLOCK_TEST_DATABASES",
			name, servers.Variable(name))
	}

	return value
}

// tryWithin is far less than the locks beside which a try is made stay: the five seconds
// that a try takes at most, and some for a loaded machine.
const tryWithin = 8 * time.Second

// patience bounds what happens sooner or later, and how soon is not what is tested.
const patience = time.Minute

// casePatience does so in a case of the suite, and is less than the leases of its locks.
const casePatience = 45 * time.Second

// unique names databases of this run.
var unique atomic.Int64

func uniqueName() string {
	return fmt.Sprintf("sqllock_test_%d_%d_%d", os.Getpid(), time.Now().Unix()%100000, unique.Add(1))
}

// migrate makes sqllock's tables.
func migrate(t *testing.T, db *sql.DB, dialect databases.Dialect) {
	t.Helper()

	if err := schema.Up(t.Context(), db, dialect); err != nil {
		t.Fatal(err)
	}
}

// lockerOn returns a locker, which is closed after the test.
func lockerOn(t *testing.T, s strategies.Strategy, opts ...sqllock.LockerOption) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(s, opts...)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	return locker
}

// exec runs a statement beside sqllock.
func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()

	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
