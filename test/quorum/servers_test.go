// Package quorum_test shows on real servers what docs/guarantees.md says of a lock on a majority: a PostgreSQL, a MySQL and
// a MariaDB, each behind a network of each process that can be cut. What needs no server is in strategies/quorum.
package quorum_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/rs/zerolog"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/quorum"
	"github.com/sqllock/sqllock/test/schema"
	"github.com/sqllock/sqllock/test/servers"
	"github.com/sqllock/sqllock/test/servers/freeport"
)

const (
	// shortest is a lease that gives each server 500 ms to answer.
	shortest = 4 * time.Second
	// fits is how many acquisitions and releases fit into a lease: a server has the time of three of them to answer.
	fits = 24
	// patience bounds what has no bound of its own.
	patience = 30 * time.Second
)

// server is a database with sqllock's tables, of a test's own.
type server struct {
	name   string
	beside *sql.DB
	open   func(address string) (*sql.DB, databases.DB) // through a network
	where  string
}

var unique atomic.Int64

// start makes a database on each server.
func start(t *testing.T) []server {
	t.Helper()

	var all []server

	for _, name := range []string{"postgres", "mysql", "mariadb"} {
		if !slices.Contains(servers.Names(), name) {
			t.Skip("SQLLOCK_TEST_DATABASES leaves out " + name + ", and a quorum needs three servers")
		}

		dsn := os.Getenv(servers.Variable(name))
		if dsn == "" {
			t.Fatalf("no server for %s: run make test, or set %s to its DSN", name, servers.Variable(name))
		}

		database := fmt.Sprintf("sqllock_quorum_%d_%d", os.Getpid(), unique.Add(1))

		if name == "postgres" {
			all = append(all, onPostgres(t, dsn, database))
		} else {
			all = append(all, onMySQL(t, name, dsn, database))
		}
	}

	return all
}

func onPostgres(t *testing.T, dsn, database string) server {
	t.Helper()

	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}

	maintenance := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = maintenance.Close() })
	exec(t, maintenance, "CREATE DATABASE "+database)
	t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE "+database+" WITH (FORCE)") })

	config = config.Copy()
	config.Database = database

	open := func(address string) (*sql.DB, databases.DB) {
		at := config.Copy()
		at.Host, at.Port = split(t, address)
		at.Fallbacks = nil
		db := stdlib.OpenDB(*at)

		return db, postgres.NewStd(db)
	}

	where := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))

	return made(t, server{name: "postgres", open: open, where: where}, databases.Postgres)
}

func onMySQL(t *testing.T, name, dsn, database string) server {
	t.Helper()

	config, err := mysqldriver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}

	config.ParseTime = true // goose reads times

	open := func(config *mysqldriver.Config) *sql.DB {
		connector, err := mysqldriver.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}

		return sql.OpenDB(connector)
	}

	maintenance := open(config)
	t.Cleanup(func() { _ = maintenance.Close() })
	exec(t, maintenance, "CREATE DATABASE "+database)
	t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE "+database) })

	config = config.Clone()
	config.DBName = database

	through := func(address string) (*sql.DB, databases.DB) {
		at := config.Clone()
		at.Addr = address
		db := open(at)

		return db, mysql.New(db)
	}

	return made(t, server{name: name, open: through, where: config.Addr}, databases.MySQL)
}

// made makes the tables.
func made(t *testing.T, s server, dialect databases.Dialect) server {
	t.Helper()

	s.beside, _ = s.open(s.where)
	t.Cleanup(func() { _ = s.beside.Close() })

	if err := schema.Up(t.Context(), s.beside, dialect); err != nil {
		t.Fatal(err)
	}

	return s
}

// wipe deletes all that the server knows of locks, as if it were restored without its data.
func (s server) wipe(t *testing.T) {
	t.Helper()

	exec(t, s.beside, "DELETE FROM sqllock_locks")

	if s.name != "postgres" {
		exec(t, s.beside, "DELETE FROM sqllock_leases")
	}
}

func exec(t *testing.T, db *sql.DB, query string) {
	t.Helper()

	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func split(t *testing.T, address string) (string, uint16) {
	t.Helper()

	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}

	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}

	return host, uint16(number)
}

// process is a locker with networks of its own.
type process struct {
	*sqllock.Locker

	t     *testing.T
	links []*toxiproxy.Proxy
}

// leaseOn is a lease that suits how long the servers take to answer on this machine.
func leaseOn(t *testing.T, all []server) time.Duration {
	t.Helper()

	// One that leaves a server all the time that there is.
	p := newProcess(t, all, time.Minute)
	defer p.close()

	var took time.Duration

	for range 3 {
		began := time.Now()

		p.release(p.acquire("measured"))

		took = max(took, time.Since(began))
	}

	t.Logf("an acquisition and its release took %s at most", took.Round(time.Millisecond))

	return max(shortest, fits*took)
}

func newProcess(t *testing.T, all []server, lease time.Duration) process {
	t.Helper()

	p := process{t: t}

	var members []strategies.Strategy

	for _, s := range all {
		link := openLink(t, s.where)
		pool, db := s.open(link.Listen)
		t.Cleanup(func() { _ = pool.Close() })

		members, p.links = append(members, cas.New(db)), append(p.links, link)
	}

	locker, err := sqllock.New(quorum.New(members...), sqllock.WithLease(lease))
	if err != nil {
		t.Fatal(err)
	}

	p.Locker = locker

	// Connections before it is about time.
	p.release(p.acquire("warm"))

	return p
}

func openLink(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()

	logger := zerolog.Nop()

	port, err := freeport.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	link := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), logger), "link", "127.0.0.1:"+port, upstream)
	if err := link.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(link.Stop)

	return link
}

// down cuts the network to a server: connections are refused. up mends it.
func (p process) down(i int) { p.links[i].Stop() }

func (p process) up(i int) {
	p.t.Helper()

	if err := p.links[i].Start(); err != nil {
		p.t.Fatal(err)
	}
}

// slow delays what a server answers.
func (p process) slow(i int, d time.Duration) {
	p.toxic(i, fmt.Sprintf(`{"name":"down","type":"latency","stream":"downstream","attributes":{"latency":%d}}`, d.Milliseconds()))
}

// silent lets nothing through, without a word.
func (p process) silent(i int) {
	p.toxic(i, `{"name":"up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)
	p.toxic(i, `{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)
}

func (p process) toxic(i int, json string) {
	p.t.Helper()

	if _, err := p.links[i].Toxics.AddToxicJson(strings.NewReader(json)); err != nil {
		p.t.Fatal(err)
	}
}

func (p process) heal(i int) {
	p.t.Helper()

	for _, toxic := range []string{"up", "down"} {
		if p.links[i].Toxics.GetToxic(toxic) != nil {
			if err := p.links[i].Toxics.RemoveToxic(context.WithoutCancel(p.t.Context()), toxic); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p process) acquire(name string) *sqllock.Lock {
	p.t.Helper()

	lock, err := p.Acquire(p.t.Context(), name, sqllock.WithMaxWait(patience))
	if err != nil {
		p.t.Fatalf("Acquire(%q) = %v, want the lock", name, err)
	}

	return lock
}

func (p process) release(lock *sqllock.Lock) {
	p.t.Helper()

	if err := lock.Release(p.t.Context()); err != nil {
		p.t.Errorf("Release() = %v, want nil", err)
	}
}

func (p process) close() {
	p.t.Helper()

	if err := p.Close(p.t.Context()); err != nil {
		p.t.Errorf("Close() = %v, want nil", err)
	}
}
