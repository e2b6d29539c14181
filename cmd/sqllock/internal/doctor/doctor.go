// Package doctor looks at a database and says what about it would harm locks,
// why, and how to fix it.
package doctor

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// Level says how bad a finding is.
type Level string

// The levels, from good to bad.
const (
	OK      Level = "ok"
	Note    Level = "note"    // harmless; good to know
	Warning Level = "warning" // has an effect when something else goes wrong
	Error   Level = "error"   // locks do not work, or do not exclude
)

// AtLeast says whether l is as bad as other, or worse.
func (l Level) AtLeast(other Level) bool {
	levels := []Level{OK, Note, Warning, Error}

	return slices.Index(levels, l) >= slices.Index(levels, other)
}

// Finding is what one check found.
type Finding struct {
	Level Level `json:"level"`
	// Check names the check.
	Check string `json:"check"`
	// Found is what is so.
	Found string `json:"found"`
	// Effect says what would happen, and Fix what to do; empty if nothing.
	Effect string `json:"effect,omitempty"`
	Fix    string `json:"fix,omitempty"`
	// Statements are SQL that does it, whatever the search_path of who runs them.
	Statements []string `json:"statements,omitempty"`
	// Hindered: somebody else's transaction kept the check from looking.
	Hindered bool `json:"-"`
}

// Plan says how the locks will be used.
type Plan struct {
	// Strategy and Lease of the locks.
	Strategy string
	Lease    time.Duration
	// Holders is how many processes will hold or wait for locks at a time.
	Holders int
	// Locker makes one of that strategy in the database, for a trial; nil for none.
	Locker func(lease time.Duration) (*sqllock.Locker, error)
}

// connectionHeld says whether each lock has a connection.
func (p Plan) connectionHeld() bool { return p.Strategy == "forupdate" || p.Strategy == "advisory" }

// heartbeat is how often a lock is renewed.
func (p Plan) heartbeat() time.Duration { return p.Lease / 3 }

// check is one thing to look at.
type check struct {
	name string
	look func(ctx context.Context, e *exam) ([]Finding, error)
}

// exam is one database under examination.
type exam struct {
	Plan

	db   *dsn.Database
	conn *sql.Conn
	// schema: the tables are there, so that checks can look at them.
	schema bool
	// usable: nothing was found that keeps this user from locks.
	usable bool
	// longest is the longest lease that is known; zero if none is.
	longest time.Duration
	// shares: sessions of the server are those of others, too.
	shares bool
}

// checkTime bounds one check.
const checkTime = 15 * time.Second

// Examine runs all checks. The error is that of the connection; what a check
// cannot see, for the lack of a privilege, is a finding.
func Examine(ctx context.Context, db *dsn.Database, plan Plan) ([]Finding, error) {
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return shutOut(ctx, db, plan, err)
	}

	e := &exam{Plan: plan, db: db, conn: conn}
	defer func() { _ = e.conn.Close() }()

	var findings []Finding

	for _, c := range checks(db.Target.Dialect) {
		found, err := e.run(ctx, c)
		if err != nil {
			return nil, err
		}

		findings = append(findings, found...)
	}

	return findings, nil
}

// run makes one check. Its error is that of the connection, if there is no other
// to be had.
func (e *exam) run(ctx context.Context, c check) ([]Finding, error) {
	limited, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()

	findings, err := c.look(limited, e)
	if err != nil {
		findings = append(findings, e.unseen(err)...)
		err = e.reconnect(ctx, errors.Is(err, context.DeadlineExceeded))
	}

	for i := range findings {
		findings[i].Check = c.name
	}

	return findings, err
}

// reconnect takes another connection if the statement that failed took this one
// with it, as one that was cut off does.
func (e *exam) reconnect(ctx context.Context, cutOff bool) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()

	if !cutOff && e.conn.PingContext(ctx) == nil {
		return nil
	}

	conn, err := e.db.SQL.Conn(ctx)
	if err != nil {
		return err
	}

	_ = e.conn.Close()
	e.conn = conn

	return nil
}

// unseen is what there is to say of a check that failed.
func (e *exam) unseen(err error) []Finding {
	switch {
	case e.forbidden(err):
		return found(Note, "could not be looked at: "+err.Error(), "", "run the doctor as a user that may read it")
	case e.full(err):
		return found(Warning, "could not be looked at for want of a connection: "+err.Error(), noConnection, moreConnections)
	case errors.Is(err, context.DeadlineExceeded):
		return hindered(fmt.Sprintf("the database did not answer within %s", checkTime))
	case e.db.Locks.Classify(err) == databases.Busy:
		return hindered("could not be looked at, for a row or a table that somebody else has locked: " + err.Error())
	default:
		return found(Warning, "could not be looked at: "+err.Error(), "statements about locks may fail too", "")
	}
}

func hindered(said string) []Finding {
	findings := found(Warning, said, "renewals may not get through either", "let the transaction end that it waits for, or end its session")
	findings[0].Hindered = true

	return findings
}

// forbidden says whether a privilege is missing.
func (e *exam) forbidden(err error) bool { return e.db.Locks.Classify(err) == databases.NotAllowed }

// full says whether the server takes no more connections of this user.
func (e *exam) full(err error) bool { return e.db.Locks.Classify(err) == databases.Full }

// checks are those of a dialect, and behind them those of all, which look at the tables.
func checks(dialect databases.Dialect) []check {
	var own []check

	switch dialect {
	case databases.Postgres:
		own = []check{
			server(`SELECT pg_catalog.version()`, postgresServer),
			{"writable", postgresWritable},
			{"search_path", postgresPath},
			{"pooler", postgresPooler},
			{"replication", postgresReplication},
			{"durability", postgresDurability},
			{"timeouts", postgresTimeouts},
			connections(postgresConnections),
			clock(`SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::float)::bigint`),
		}
	case databases.MySQL:
		own = []check{
			server(`SELECT VERSION()`, mysqlServer),
			{"writable", mysqlWritable},
			{"replication", mysqlReplication},
			{"cluster", mysqlCluster},
			{"durability", mysqlDurability},
			{"timeouts", mysqlTimeouts},
			connections(mysqlConnections),
			clock(`SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`),
		}
	case databases.TiDB:
		own = []check{
			server(`SELECT VERSION()`, func(_ *exam, version string) []Finding { return fine("TiDB %s", version) }),
			{"writable", mysqlWritable},
			{"timeouts", mysqlTimeouts},
			connections(mysqlConnections),
			clockOf(tidbClock),
		}
	case databases.SQLite:
		own = []check{
			server(`SELECT sqlite_version()`, sqliteVersion),
			{"strategy", sqliteStrategy},
			{"journal", sqliteJournal},
			{"timeouts", sqliteTimeout},
			{"file system", fileSystem},
		}
	}

	return append(own, check{"schema", schema}, check{"rights", rights}, check{"tables", tables}, check{"recovery", recovery}, check{"trial", trial})
}

// one reads a row.
func (e *exam) one(ctx context.Context, query string, dest ...any) error {
	return e.conn.QueryRowContext(ctx, e.asked(query), e.mode()...).Scan(dest...)
}

// each calls read for every row of a query.
func (e *exam) each(ctx context.Context, query string, read func(rows *sql.Rows) error) error {
	return dsn.Each(ctx, e.conn, read, e.asked(query), e.mode()...)
}

// pairs reads rows of two texts. The first ones, by which the others are found, are made small letters: MySQL has names of
// variables with large ones.
func (e *exam) pairs(ctx context.Context, query string) (map[string]string, error) {
	pairs := map[string]string{}

	err := e.each(ctx, query, func(rows *sql.Rows) error {
		var name, value string

		err := rows.Scan(&name, &value)
		pairs[strings.ToLower(name)] = value

		return err
	})

	return pairs, err
}

// asked is a query as it is sent. pgpool-II would send one that only reads to a standby, whose settings, sessions and tables
// are not those of the primary, but for this comment
// (https://www.pgpool.net/docs/latest/en/html/runtime-config-load-balancing.html).
func (e *exam) asked(query string) string {
	if e.db.Target.Dialect == databases.Postgres {
		return "/*NO LOAD BALANCE*/ " + query
	}

	return query
}

func fine(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Found: fmt.Sprintf(format, args...)}}
}

func found(level Level, found, effect, fix string) []Finding {
	return []Finding{{Level: level, Found: found, Effect: effect, Fix: fix}}
}

// refused is what the library says of a server that it does not take; nil if it
// takes it, or would if it took writes, for which there is a check.
func (e *exam) refused(ctx context.Context) ([]Finding, error) {
	conn, err := e.db.Locks.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()

	err = e.db.Locks.Verify(ctx, conn)

	switch server := (*databases.ServerError)(nil); {
	case errors.As(err, &server):
		said := server.Found
		if server.Err != nil {
			said += ": " + server.Err.Error()
		}

		fix := cmp.Or(server.Fix, "use PostgreSQL, MySQL, MariaDB or TiDB")

		return found(Error, said, "sqllock refuses it: no lock can be acquired", fix), nil
	case errors.Is(err, databases.ErrReadOnly):
		return nil, nil
	default:
		return nil, err
	}
}

// server checks that sqllock supports the server, and reports its version.
func server(query string, say func(e *exam, version string) []Finding) check {
	return check{"server", func(ctx context.Context, e *exam) ([]Finding, error) {
		if refused, err := e.refused(ctx); err != nil || refused != nil {
			return refused, err
		}

		var version string
		if err := e.one(ctx, query, &version); err != nil {
			return nil, err
		}

		return say(e, version), nil
	}}
}

// clock compares the server's microseconds since 1970 with this machine's.
func clock(query string) check {
	return clockOf(func(ctx context.Context, e *exam) (micros int64, err error) {
		err = e.one(ctx, query, &micros)

		return micros, err
	})
}

// clockOf does so with what ask returns.
func clockOf(ask func(ctx context.Context, e *exam) (micros int64, err error)) check {
	return check{"clock", func(ctx context.Context, e *exam) ([]Finding, error) {
		begun := time.Now()

		micros, err := ask(ctx, e)
		if err != nil {
			return nil, err
		}

		took := time.Since(begun)
		apart := time.UnixMicro(micros).Sub(begun.Add(took / 2))

		if apart.Abs() <= 2*time.Second+took {
			return fine("the server's clock is within %s of this machine's", max(apart.Abs(), took).Round(time.Millisecond)), nil
		}

		return found(Warning, fmt.Sprintf("the server's clock differs from this machine's by %s", apart.Round(time.Millisecond)),
			"locks go by the server's clock alone, but if that one is wrong and is set right in one step, leases end early or late; "+
				"and tokens may shrink over a fail-over to a server whose clock is behind",
			"run NTP on both, and let it slew the clock"), nil
	}}
}

const (
	noConnection    = "renewals that need a new connection fail, and locks are lost"
	moreConnections = "raise the limit of the server, or of the user (CONNECTION LIMIT, MAX_USER_CONNECTIONS), or make pools smaller"
)

// second looks whether there is another connection beside that of the examination:
// a lock that has one itself needs it. nil if there is.
func (e *exam) second(ctx context.Context) ([]Finding, error) {
	conn, err := e.db.SQL.Conn(ctx)

	switch {
	case err == nil:
		return nil, conn.Close()
	case !e.full(err):
		return nil, err
	case e.connectionHeld():
		return found(Error, "the server refuses a second connection: "+err.Error(),
			"a lock of strategy "+e.Strategy+" has a connection of its own beside another for all else: none can be acquired",
			moreConnections+", or use strategy cas"), nil
	default:
		return found(Warning, "the server refuses a second connection: "+err.Error(), noConnection, moreConnections), nil
	}
}

// connections judges how many connections are left for those to come.
func connections(count func(ctx context.Context, e *exam) (most, used int, err error)) check {
	return check{"connections", func(ctx context.Context, e *exam) ([]Finding, error) {
		if refused, err := e.second(ctx); err != nil || refused != nil {
			return refused, err
		}

		most, used, err := count(ctx, e)
		left, need := most-used, 5

		if e.connectionHeld() {
			need = max(need, e.Holders+1)
		}

		switch {
		case err != nil:
			return nil, err
		case most == 0: // TiDB's default
			return fine("the server has no limit on connections"), nil
		case left >= need:
			return fine("%d of %d connections are left", left, most), nil
		default:
			return found(Warning, fmt.Sprintf("%d of %d connections are left, and %d are needed", left, most, need),
				noConnection+"; with forupdate and advisory each lock has a connection",
				"raise the server's max_connections, make pools smaller, or use strategy cas"), nil
		}
	}}
}
