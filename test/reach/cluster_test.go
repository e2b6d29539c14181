// Package reach tests the locks on clusters and behind proxies that somebody has brought up: make reach. It starts no server,
// and what it runs on is named in the environment. What is not named is said to be not run.
//
// Clusters, a DSN for each node, with a comma between them:
//
//	SQLLOCK_REACH_GALERA        # MariaDB Galera
//	SQLLOCK_REACH_GROUP         # MySQL Group Replication, several primaries
//	SQLLOCK_REACH_GROUP_PRIMARY # MySQL Group Replication, one primary
//	SQLLOCK_REACH_PATRONI       # PostgreSQL, one primary at a time
//
//	SQLLOCK_REACH_GALERA='root@tcp(127.0.0.1:3306)/,root@tcp(127.0.0.1:3307)/'
//	SQLLOCK_REACH_PATRONI='postgres://postgres@127.0.0.1:5432/postgres,postgres://postgres@127.0.0.1:5433/postgres'
//
// The nodes are on this machine: tests stop and kill the process that listens there. Commands for sh, to which the number of a
// node is added, do what a signal does not, for each cluster by its name:
//
//	SQLLOCK_REACH_START_GALERA='./start-node'          # starts a node that was killed, and returns when it is back
//	SQLLOCK_REACH_KILL_PATRONI='./kill-node'           # kills a node, where that is more than one process
//	SQLLOCK_REACH_SWITCH_PATRONI='./switch-over'       # makes another node the primary, which this one is
//
// Proxies before PostgreSQL, the DSNs of the proxy, and past it of the server, and of its standby if it has one:
//
//	SQLLOCK_REACH_PGBOUNCER           # PgBouncer, pool_mode=transaction
//	SQLLOCK_REACH_PGBOUNCER_STATEMENT # PgBouncer, pool_mode=statement
//	SQLLOCK_REACH_ODYSSEY             # Odyssey, pool "transaction"
//	SQLLOCK_REACH_PGPOOL              # pgpool-II, load_balance_mode=on
//
// TiDB, a server, for the conformance suite in package conformance:
//
//	SQLLOCK_REACH_TIDB='root@tcp(127.0.0.1:4000)/test'
package reach_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/test/catalog"
	"github.com/sqllock/sqllock/test/schema"
)

// cluster is one that somebody brought up.
type cluster struct {
	name    string // in the names of variables
	dialect databases.Dialect
	several bool // all nodes take writes; elsewhere one of them does, and processes look for it

	// check is what the doctor looks at, and finds as bad as this, on a node that takes writes.
	check, found string
}

var clusters = []cluster{
	{"GALERA", databases.MySQL, true, "cluster", "note"},
	{"GROUP", databases.MySQL, true, "cluster", "note"},
	{"GROUP_PRIMARY", databases.MySQL, false, "cluster", "ok"},
	{"PATRONI", databases.Postgres, false, "replication", "ok"},
}

// node is a server of a cluster.
type node struct {
	number    int
	url       string // for the command
	address   string
	connector driver.Connector
}

// process is one that uses locks, with what it reaches of the cluster: a node, or whichever is the primary.
type process struct {
	pool   *sql.DB
	open   func() *sql.DB // one more pool
	locker *sqllock.Locker
}

// site is a cluster with a database of the test's own.
type site struct {
	cluster

	nodes     []node
	processes []process // as many as nodes
}

// on runs a test on each cluster that is named, one after the other: each needs the machine.
func on(t *testing.T, suits func(cluster) bool, test func(t *testing.T, s site)) {
	t.Helper()

	for _, c := range clusters {
		if suits(c) {
			t.Run(strings.ToLower(c.name), func(t *testing.T) { test(t, reach(t, c)) })
		}
	}
}

func all(cluster) bool          { return true }
func several(c cluster) bool    { return c.several }
func onePrimary(c cluster) bool { return !c.several }

// named returns what a variable says. What says nothing is not run.
func named(t *testing.T, variable string) string {
	t.Helper()

	value := os.Getenv(variable)
	if value == "" {
		t.Skipf("not run: %s is not set", variable)
	}

	return value
}

func reach(t *testing.T, c cluster) site {
	t.Helper()

	var (
		made  = site{cluster: c}
		dsns  = strings.Split(named(t, "SQLLOCK_REACH_"+c.name), ",")
		own   = fmt.Sprintf("sqllock_reach_%d", os.Getpid())
		admin []node
	)

	for i, dsn := range dsns {
		admin = append(admin, connect(t, c.dialect, dsn, i+1, ""))
		made.nodes = append(made.nodes, connect(t, c.dialect, dsn, i+1, own))
	}

	// Each time over a new connection: the primary may be another one by then.
	maintenance := open(t, toPrimary{c.dialect, admin})
	maintenance.SetMaxIdleConns(0)

	execute(t, maintenance, "CREATE DATABASE "+own)
	t.Cleanup(func() { drop(t, maintenance, c.dialect, own) })

	if err := schema.Up(t.Context(), open(t, toPrimary{c.dialect, made.nodes}), c.dialect); err != nil {
		t.Fatal(err)
	}

	for _, n := range made.nodes {
		to := n.connector
		if !c.several {
			to = toPrimary{c.dialect, made.nodes}
		}

		p := process{open: func() *sql.DB { return open(t, to) }}
		p.pool = p.open()
		p.locker = c.locker(t, p, catalog.Leased()[0])
		made.processes = append(made.processes, p)

		// The tables may come to it a moment later.
		takesWrites(t, p)
	}

	return made
}

// locker is one more of a process, with a pool of its own.
func (c cluster) locker(t *testing.T, p process, s catalog.Strategy) *sqllock.Locker {
	t.Helper()

	var db databases.DB = mysql.New(p.open())
	if c.dialect == databases.Postgres {
		db = postgres.NewStd(p.open())
	}

	locker, err := sqllock.New(s.Make(db))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })

	return locker
}

// takesWrites waits until a process can acquire a lock.
func takesWrites(t *testing.T, p process) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	for {
		lock, err := p.locker.Acquire(ctx, "again")
		if err == nil {
			if err := lock.Release(ctx); err != nil {
				t.Error(err)
			}

			return
		}

		select {
		case <-ctx.Done():
			t.Fatalf("no lock can be acquired: %v", err)
		case <-time.After(time.Second):
		}
	}
}

// primary is the node that takes writes: the first one where all do.
func (s site) primary(t *testing.T) node {
	t.Helper()

	for _, n := range s.nodes {
		conn, err := n.connector.Connect(t.Context())
		if err != nil {
			continue
		}

		writable, err := takes(t.Context(), conn, s.dialect)
		_ = conn.Close()

		if err == nil && writable {
			return n
		}
	}

	t.Fatal("no node takes writes")

	return node{}
}

func execute(t *testing.T, pool *sql.DB, statement string) {
	t.Helper()

	if _, err := pool.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// drop removes a database, of whose pools some may be open.
func drop(t *testing.T, pool *sql.DB, dialect databases.Dialect, name string) {
	t.Helper()

	statement := "DROP DATABASE " + name
	if dialect == databases.Postgres {
		statement += " WITH (FORCE)"
	}

	if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}
