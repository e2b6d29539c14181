// Package doctor looks at a database and says what about it would hurt locks,
// why, and how to mend it.
package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
)

// Level says how bad a finding is.
type Level string

// The levels, from good to bad.
const (
	OK      Level = "ok"
	Note    Level = "note"    // nothing hurts; good to know
	Warning Level = "warning" // hurts when something else goes wrong
	Error   Level = "error"   // locks do not work, or do not exclude
)

// AtLeast says whether l is as bad as other, or worse.
func (l Level) AtLeast(other Level) bool { return rank(l) >= rank(other) }

func rank(l Level) int {
	switch l {
	case Error:
		return 3
	case Warning:
		return 2
	case Note:
		return 1
	case OK:
		return 0
	default:
		return 0
	}
}

// Finding is what one check found.
type Finding struct {
	Level Level `json:"level"`
	// Check names the check.
	Check string `json:"check"`
	// Found is what is so.
	Found string `json:"found"`
	// Hurts says what would happen, and Mend what to do; empty if nothing.
	Hurts string `json:"hurts,omitempty"`
	Mend  string `json:"mend,omitempty"`
}

// Plan says how the locks will be used.
type Plan struct {
	// Strategy and Lease of the locks.
	Strategy string
	Lease    time.Duration
	// Holders is how many processes will hold or wait for locks at a time.
	Holders int
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
}

// checkTime bounds one check.
const checkTime = 15 * time.Second

// Examine runs all checks. The error is that of the connection; what a check
// can not see, for the lack of a privilege, is a finding.
func Examine(ctx context.Context, db *dsn.Database, plan Plan) ([]Finding, error) {
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return nil, err
	}

	e := &exam{Plan: plan, db: db, conn: conn}
	defer func() { _ = e.conn.Close() }()

	var findings []Finding

	for _, c := range append(checks(db.Target.Dialect), check{"schema", schema}, check{"tables", tables}, check{"bloat", bloat}) {
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
		findings = append(findings, unseen(err)...)
	}

	for i := range findings {
		findings[i].Check = c.name
	}

	if err == nil {
		return findings, nil
	}

	return findings, e.reconnect(ctx, errors.Is(err, context.DeadlineExceeded))
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
func unseen(err error) []Finding {
	switch {
	case forbidden(err):
		return found(Note, "could not be looked at: "+err.Error(), "", "run the doctor as a user that may read it")
	case errors.Is(err, context.DeadlineExceeded):
		return found(Warning, fmt.Sprintf("the database did not answer within %s", checkTime),
			"renewals may not get through either", "see what it waits for")
	default:
		return found(Warning, "could not be looked at: "+err.Error(), "statements about locks may fail too", "")
	}
}

// forbidden says whether a privilege is missing.
func forbidden(err error) bool {
	var (
		postgres *pgconn.PgError
		numbered *mysql.MySQLError
	)

	switch {
	case errors.As(err, &postgres):
		return postgres.Code == "42501"
	case errors.As(err, &numbered):
		// To a database, a table, a column, of a kind, to a routine.
		return slices.Contains([]uint16{1044, 1142, 1143, 1227, 1370}, numbered.Number)
	default:
		return false
	}
}

func checks(dialect databases.Dialect) []check {
	switch dialect {
	case databases.Postgres:
		return postgresChecks()
	case databases.MySQL:
		return mysqlChecks()
	case databases.SQLite:
		return sqliteChecks()
	default:
		return nil
	}
}

// one reads a row.
func (e *exam) one(ctx context.Context, query string, dest ...any) error {
	return e.conn.QueryRowContext(ctx, query, e.mode()...).Scan(dest...)
}

func fine(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Found: fmt.Sprintf(format, args...)}}
}

func found(level Level, found, hurts, mend string) []Finding {
	return []Finding{{Level: level, Found: found, Hurts: hurts, Mend: mend}}
}

// clock compares the server's microseconds since 1970 with this machine's.
func clock(query string) check {
	return check{"clock", func(ctx context.Context, e *exam) ([]Finding, error) {
		var micros int64

		begun := time.Now()

		if err := e.one(ctx, query, &micros); err != nil {
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

// connections judges how many connections are left for those to come.
func connections(e *exam, most, used int) []Finding {
	left := most - used

	need := 5
	if e.connectionHeld() {
		need = max(need, e.Holders+1)
	}

	if left >= need {
		return fine("%d of %d connections are left", left, most)
	}

	return found(Warning, fmt.Sprintf("%d of %d connections are left, and %d are needed", left, most, need),
		"renewals that need a new connection fail, and locks are lost; with forupdate and advisory each lock has a connection",
		"raise the server's max_connections, make pools smaller, or use strategy cas")
}
