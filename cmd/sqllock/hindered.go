package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

const (
	// statementTime bounds a statement that may wait for somebody else's lock.
	statementTime = 10 * time.Second
	// rollbackTime bounds "migrate down", whose statements are goose's.
	rollbackTime = 30 * time.Second
	// answerTime bounds the question whether the server answers at all.
	answerTime = 2 * time.Second
)

// impatient is a database whose statements do not wait for others for ever. It is for
// what acts on locks of others: a row or a table that another transaction has locked
// is waited for.
type impatient struct{ databases.DB }

// Validate is the database's.
func (i impatient) Validate() error {
	if v, ok := i.DB.(interface{ Validate() error }); ok {
		return v.Validate()
	}

	return nil
}

// Conn checks out a connection.
func (i impatient) Conn(ctx context.Context) (databases.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()

	conn, err := i.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return impatientConn{conn, i.DB}, nil
}

// Verify asks the server what it is.
func (i impatient) Verify(ctx context.Context, s databases.Session) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()

	if conn, ok := s.(impatientConn); ok {
		s = conn.Conn
	}

	return i.DB.Verify(ctx, s)
}

type impatientConn struct {
	databases.Conn

	db databases.DB
}

// errOneWriter is SQLite's answer to a writer beside another. Whoever goes on with the
// next name, as a reaper does, would wait there for the same.
var errOneWriter = errors.New("the file has another writer")

// Exec runs a statement.
func (c impatientConn) Exec(ctx context.Context, s databases.Statement, v databases.Values) (databases.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()

	result, err := c.Conn.Exec(ctx, s, v)
	if c.db.Dialect() == databases.SQLite && c.db.Classify(err) == databases.Busy {
		err = fmt.Errorf("%w: %s", errOneWriter, err) //nolint:errorlint // what it wraps would be tried again
	}

	return result, err
}

// Query runs a statement and reads its rows.
func (c impatientConn) Query(ctx context.Context, s databases.Statement, v databases.Values, row func(databases.Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()

	return c.Conn.Query(ctx, s, v, row)
}

// hindered is err, or says that somebody else's transaction is in the way if that is
// what err comes from: the database refused for it, or the statement had no answer
// though the server has one for others. what names what could not be done.
func hindered(ctx context.Context, db *dsn.Database, what string, err error) error {
	switch {
	case err == nil || errors.As(err, new(exitError)):
		return err
	case db.Locks.Classify(err) == databases.Busy, errors.Is(err, errOneWriter), errors.Is(err, sqllock.ErrNotAcquired):
		return inTheWay(what, "has", err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, sqllock.ErrUnreachable):
		if answers(ctx, db) {
			return inTheWay(what, "seems to have", "the server answers, and this statement had no answer in time")
		}

		return err
	default:
		return err
	}
}

func inTheWay(what, has, why string) error {
	return exitError{exitNotAcquired, fmt.Errorf("%s: a transaction of somebody else %s a row or a table of sqllock locked, and does not let go; "+
		"let it end, or end its session, and try again (%s)", what, has, why)}
}

// answers says whether the server has an answer to a question that needs no lock.
func answers(ctx context.Context, db *dsn.Database) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()

	var one int

	return db.SQL.QueryRowContext(ctx, "SELECT 1").Scan(&one) == nil
}
