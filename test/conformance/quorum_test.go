package conformance_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/insert"
	"github.com/sqllock/sqllock/strategies/quorum"
)

// member is one database of a quorum, with two pools, and what a case does to its rows.
type member struct {
	faulty, other *sqllocktest.Faulty
	strategy      func(databases.DB) strategies.Strategy
	begin         func(t *testing.T, isolation string) sqllocktest.Transaction
	age           func(t *testing.T, name string, d time.Duration)
	remove        func(t *testing.T, name string)
	lock          func(t *testing.T, name string) (unlock func())
}

func casOn(db databases.DB) strategies.Strategy    { return cas.New(db) }
func insertOn(db databases.DB) strategies.Strategy { return insert.New(db) }

// quorumFixture puts members together. They share a script, so that a fault strikes each of them.
func quorumFixture(t *testing.T, members ...member) sqllocktest.Fixture {
	var (
		all, others []strategies.Strategy
		first       = members[0]
	)

	first.faulty.Spread(len(members))
	first.other.Spread(len(members))

	t.Helper()

	for _, m := range members {
		// A connection each: how long those of a busy machine take is not what is tested.
		for _, db := range []*sqllocktest.Faulty{m.faulty, m.other} {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			conn.Release()
		}

		m.faulty.Script, m.other.Script = first.faulty.Script, first.other.Script
		all, others = append(all, m.strategy(m.faulty)), append(others, m.strategy(m.other))
	}

	return sqllocktest.Fixture{
		Strategy: quorum.New(all...), Other: quorum.New(others...), Script: first.faulty.Script, Begin: first.begin,
		Age: func(t *testing.T, name string, d time.Duration) {
			for _, m := range members {
				m.age(t, name, d)
			}
		},
		RemoveRow: func(t *testing.T, name string) {
			for _, m := range members {
				m.remove(t, name)
			}
		},
		LockRow: func(t *testing.T, name string) func() {
			unlocks := make([]func(), len(members))
			for i, m := range members {
				unlocks[i] = m.lock(t, name)
			}

			return func() {
				for _, unlock := range unlocks {
					unlock()
				}
			}
		},
	}
}

// TestQuorumSQLite runs the suite over three files, with both strategies.
func TestQuorumSQLite(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	sqllocktest.Run(t, sqllocktest.Harness{
		New: func(t *testing.T) sqllocktest.Fixture {
			return quorumFixture(t, sqliteMember(t, casOn), sqliteMember(t, insertOn), sqliteMember(t, casOn))
		},
		TryWithin: tryWithin,
	})
}

func sqliteMember(t *testing.T, strategy func(databases.DB) strategies.Strategy) member {
	t.Helper()

	file := sqliteFile(t)
	beside := sqlitePool(t, file)
	faulty := sqllocktest.NewFaulty(sqlite.New(sqlitePool(t, file)))

	return member{
		faulty: faulty, other: sqllocktest.NewFaulty(sqlite.New(sqlitePool(t, file))), strategy: strategy,
		begin: func(t *testing.T, isolation string) sqllocktest.Transaction {
			return begin(t, beside, isolation, sqlite.Tx, faulty)
		},
		age: func(t *testing.T, name string, d time.Duration) { age(t, beside, "sqllock_locks", name, d) },
		remove: func(t *testing.T, name string) {
			removeRows(t, beside, "?", name, "sqllock_locks", "sqllock_inserts")
		},
		lock: func(t *testing.T, name string) func() {
			return lockRows(t, beside, name, "UPDATE sqllock_locks SET token = token WHERE name = ?")
		},
	}
}

// TestQuorum runs what is about answers that are lost, owners and tokens over a PostgreSQL, a MySQL and a MariaDB. The
// statements are those of the strategies, which the other runs are about.
func TestQuorum(t *testing.T) {
	t.Parallel()

	config, err := pgx.ParseConfig(dsn(t, "postgres"))
	if err != nil {
		t.Fatal(err)
	}

	servers := []string{"mysql", "mariadb"}
	for _, server := range servers {
		dsn(t, server)
	}

	config = postgresDatabase(t, config)

	pools := make([]func() *sql.DB, len(servers))
	for i, server := range servers {
		config := mysqlDatabase(t, mysqlConfig(t, server))
		pools[i] = func() *sql.DB { return mysqlPool(t, config) }
	}

	besides := []*sql.DB{stdPool(t, config), pools[0](), pools[1]()}

	sqllocktest.Run(t, sqllocktest.Harness{
		Only: func(name string) bool {
			kind, _, _ := strings.Cut(name, "/")

			return slices.Contains([]string{"exclusion", "token", "owner", "release", "ambiguity", "once", "features", "force release", "inspect"}, kind)
		},
		New: func(t *testing.T) sqllocktest.Fixture {
			return quorumFixture(t,
				postgresMember(t, config, besides[0]), mysqlMember(pools[0], besides[1], insertOn), mysqlMember(pools[1], besides[2], casOn))
		},
		TryWithin: tryWithin,
	})
}

func postgresMember(t *testing.T, config *pgx.ConnConfig, beside *sql.DB) member {
	t.Helper()

	faulty := sqllocktest.NewFaulty(pgxPool(t, config, pgx.QueryExecModeCacheStatement))

	return member{
		faulty: faulty, other: sqllocktest.NewFaulty(pgxPool(t, config, pgx.QueryExecModeCacheStatement)), strategy: casOn,
		begin: func(t *testing.T, isolation string) sqllocktest.Transaction {
			return begin(t, beside, isolation, func(tx *sql.Tx) databases.Tx { return postgres.StdTx(tx) }, faulty)
		},
		age: func(t *testing.T, name string, d time.Duration) {
			exec(t, beside, "UPDATE sqllock_locks SET expires_at = expires_at - $2::float * interval '1 microsecond' WHERE name = $1",
				name, d.Microseconds())

			if d >= idle {
				exec(t, beside, "UPDATE sqllock_locks SET token = token - $2 WHERE name = $1", name, d.Microseconds())
			}
		},
		remove: func(t *testing.T, name string) {
			removeRows(t, beside, "$1", name, "sqllock_locks", "sqllock_inserts")
		},
		lock: func(t *testing.T, name string) func() {
			return lockRows(t, beside, name, "SELECT 1 FROM sqllock_locks WHERE name = $1 FOR UPDATE")
		},
	}
}

func mysqlMember(pool func() *sql.DB, beside *sql.DB, strategy func(databases.DB) strategies.Strategy) member {
	return member{
		faulty: sqllocktest.NewFaulty(mysql.New(pool())), other: sqllocktest.NewFaulty(mysql.New(pool())), strategy: strategy,
		age: func(t *testing.T, name string, d time.Duration) { age(t, beside, "sqllock_leases", name, d) },
		remove: func(t *testing.T, name string) {
			removeRows(t, beside, "?", name, "sqllock_locks", "sqllock_leases", "sqllock_inserts")
		},
		lock: func(t *testing.T, name string) func() {
			return lockRows(t, beside, name, "SELECT 1 FROM sqllock_locks WHERE name = ? FOR UPDATE",
				"SELECT 1 FROM sqllock_leases WHERE name = ? FOR UPDATE")
		},
	}
}
