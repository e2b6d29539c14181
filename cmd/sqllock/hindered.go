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
	// forceTime bounds the release of somebody else's lock.
	forceTime = 10 * time.Second
	// rollbackTime bounds "migrate down", whose statements are goose's.
	rollbackTime = 30 * time.Second
	// answerTime bounds the question whether the server answers at all.
	answerTime = 2 * time.Second
)

// hindered is err, or says that somebody else's transaction is in the way if that is
// what err comes from: the database refused for it, or the statement had no answer
// though the server has one for others. what names what could not be done.
func hindered(ctx context.Context, db *dsn.Database, what string, err error) error {
	switch {
	case err == nil || errors.As(err, new(exitError)):
		return err
	case db.Locks.Classify(err) == databases.Busy, errors.Is(err, sqllock.ErrNotAcquired):
		return inTheWay(what, "has", err.Error())
	case (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sqllock.ErrUnreachable)) && answers(ctx, db):
		return inTheWay(what, "seems to have", "the server answers, and this statement had no answer in time")
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
