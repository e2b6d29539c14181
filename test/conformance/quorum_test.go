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
	"github.com/sqllock/sqllock/internal/outsider"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/insert"
	"github.com/sqllock/sqllock/strategies/quorum"
)

// member is one database of a quorum, with two pools, and what a case does there beside the strategy.
type member struct {
	faulty, other *sqllocktest.Faulty
	strategy      func(databases.DB) strategies.Strategy
	beside        sqllocktest.Fixture
}

func newMember(
	open func() databases.DB, strategy func(databases.DB) strategies.Strategy, who outsider.Outsider, wrap func(*sql.Tx) databases.Tx,
) member {
	m := member{faulty: sqllocktest.NewFaulty(open()), other: sqllocktest.NewFaulty(open()), strategy: strategy}
	m.beside.Faulty = m.faulty
	who.Equip(&m.beside, wrap)

	return m
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
		Strategy: quorum.New(all...), Other: quorum.New(others...), Script: first.faulty.Script, Begin: first.beside.Begin,
		Age: func(t *testing.T, name string, d time.Duration) {
			for _, m := range members {
				m.beside.Age(t, name, d)
			}
		},
		RemoveRow: func(t *testing.T, name string) {
			for _, m := range members {
				m.beside.RemoveRow(t, name)
			}
		},
		LockRow: func(t *testing.T, name string) func() {
			unlocks := make([]func(), len(members))
			for i, m := range members {
				unlocks[i] = m.beside.LockRow(t, name)
			}

			return func() {
				for _, unlock := range unlocks {
					unlock()
				}
			}
		},
	}
}

// TestQuorumSQLite runs what is about answers that are lost, and tokens, over three files, with both strategies. All of the suite
// runs in memory, in package quorum: three files are synchronized three times as often as one.
func TestQuorumSQLite(t *testing.T) {
	t.Parallel()
	dsn(t, "sqlite")

	sqllocktest.Run(t, sqllocktest.Harness{
		New: func(t *testing.T) sqllocktest.Fixture {
			return quorumFixture(t, sqliteMember(t, casOn), sqliteMember(t, insertOn), sqliteMember(t, casOn))
		},
		Only: func(name string) bool {
			kind, _, _ := strings.Cut(name, "/")

			return slices.Contains([]string{"token", "ambiguity", "once"}, kind)
		},
		TryWithin: tryWithin,
		Patience:  casePatience,
	})
}

func sqliteMember(t *testing.T, strategy func(databases.DB) strategies.Strategy) member {
	t.Helper()

	file := sqliteFile(t)

	return newMember(func() databases.DB { return sqlite.New(sqlitePool(t, file)) }, strategy,
		outsider.Outsider{DB: sqlitePool(t, file), Dialect: databases.SQLite}, sqlite.Tx)
}

// TestQuorum runs what is about answers that are lost, owners and tokens over a PostgreSQL, a MySQL and a MariaDB. The
// statements are those of the strategies, which the other runs are about.
//
//nolint:tparallel // One kind of cases after the other: each case keeps three servers busy, and each of these has a limit for its answers.
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

	run := func(t *testing.T, kind string) {
		t.Helper()

		sqllocktest.Run(t, sqllocktest.Harness{
			Only: func(name string) bool {
				// These count faults, or want that all servers answer in time. One that was late has none of the faults, and what it grants
				// is given back and asked for anew. In memory none is late.
				if strings.HasPrefix(name, "ambiguity/") && (strings.Contains(name, " that failed") || strings.Contains(name, " that arrives again")) {
					return false
				}

				return strings.HasPrefix(name, kind+"/")
			},
			New: func(t *testing.T) sqllocktest.Fixture {
				return quorumFixture(t,
					postgresMember(t, config, besides[0]), mysqlMember(pools[0], besides[1], insertOn), mysqlMember(pools[1], besides[2], casOn))
			},
			TryWithin: tryWithin,
			Patience:  casePatience,
		})
	}

	for _, kind := range []string{"exclusion", "token", "owner", "release", "ambiguity", "once", "features", "force release", "inspect"} {
		t.Run(kind, func(t *testing.T) { run(t, kind) })
	}
}

func postgresMember(t *testing.T, config *pgx.ConnConfig, beside *sql.DB) member {
	t.Helper()

	return newMember(func() databases.DB { return pgxPool(t, config, pgx.QueryExecModeCacheStatement) }, casOn,
		outsider.Outsider{DB: beside, Dialect: databases.Postgres}, func(tx *sql.Tx) databases.Tx { return postgres.StdTx(tx) })
}

func mysqlMember(pool func() *sql.DB, beside *sql.DB, strategy func(databases.DB) strategies.Strategy) member {
	return newMember(func() databases.DB { return mysql.New(pool()) }, strategy,
		outsider.Outsider{DB: beside, Dialect: databases.MySQL}, func(tx *sql.Tx) databases.Tx { return mysql.Tx(tx) })
}
