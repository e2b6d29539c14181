// Package reach tests the locks on clusters that somebody has brought up: make reach. It starts no server, and what it
// runs on is named in the environment, a DSN for each node:
//
//	SQLLOCK_REACH_GALERA='root@tcp(127.0.0.1:3306)/test,root@tcp(127.0.0.1:3307)/test'
//	SQLLOCK_REACH_GROUP='...' # MySQL Group Replication with several primaries
//	SQLLOCK_REACH_TIDB='root@tcp(127.0.0.1:4000)/test' # the conformance suite, in package conformance
//
//	SQLLOCK_REACH_START_GALERA='./galera.sh start' # and _GROUP: starts the node whose number is added, after it was killed
//
// The nodes are on this machine: tests stop and kill the process of the first.
package reach_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/schema"
)

// clusters are those whose nodes all take writes, by the variable that names them.
var clusters = map[string]string{"galera": "SQLLOCK_REACH_GALERA", "group": "SQLLOCK_REACH_GROUP"}

// node is a server of a cluster as a process sees it that has no other.
type node struct {
	pool   *sql.DB
	locker *sqllock.Locker
	pid    int
}

// nodes are those of a cluster, on a database of the test's own.
func nodes(t *testing.T, cluster string) []node {
	t.Helper()

	dsns := os.Getenv(clusters[cluster])
	if dsns == "" {
		t.Skipf("not run: %s names no nodes", clusters[cluster])
	}

	var (
		made []node
		name = fmt.Sprintf("sqllock_reach_%d", os.Getpid())
	)

	for i, dsn := range strings.Split(dsns, ",") {
		config, err := driver.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}

		config.DBName = ""
		config.ParseTime = true // goose reads times

		if i == 0 {
			admin := open(t, config)
			execute(t, admin, "CREATE DATABASE "+name)
			t.Cleanup(func() { _, _ = admin.ExecContext(context.Background(), "DROP DATABASE "+name) })
		}

		config.DBName = name
		pool := open(t, config)

		if i == 0 {
			if err := schema.Up(t.Context(), pool, databases.MySQL); err != nil {
				t.Fatal(err)
			}
		}

		locker, err := sqllock.New(cas.New(mysql.New(pool)))
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = locker.Close(context.Background()) })

		made = append(made, node{pool: pool, locker: locker, pid: listener(t, config.Addr)})
	}

	return made
}

func open(t *testing.T, config *driver.Config) *sql.DB {
	t.Helper()

	connector, err := driver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}

	pool := sql.OpenDB(connector)
	pool.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = pool.Close() })

	return pool
}

func execute(t *testing.T, pool *sql.DB, statement string) {
	t.Helper()

	if _, err := pool.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// listener returns the process that listens at an address of this machine.
func listener(t *testing.T, address string) int {
	t.Helper()

	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}

	socket := ""

	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := os.ReadFile(file)

		for line := range strings.Lines(string(table)) {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode; 0A listens.
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == "0A" && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", number)) {
				socket = "socket:[" + fields[9] + "]"
			}
		}
	}

	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == socket {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				t.Fatal(err)
			}

			return pid
		}
	}

	t.Fatalf("no process of this machine listens at %s", address)

	return 0
}
