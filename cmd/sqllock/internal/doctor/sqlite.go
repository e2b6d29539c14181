package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
)

func sqliteVersion(e *exam, version string) []Finding {
	if e.db.Target.Embedded {
		return unnamed(fmt.Sprintf("no database is named: SQLite %s, in %s", version, e.db.Target.Path))
	}

	return fine("SQLite %s, for the processes of one machine", version)
}

func unnamed(said string) []Finding {
	return found(Note, said, "locks hold between the processes of this machine and user only", "nothing, or name the database: sqllock --help")
}

// Unmade is what there is to say of the file of this machine before it is made.
func Unmade(target dsn.Target, plan Plan) []Finding {
	findings := unnamed("no database is named: the file " + target.Path + " will be made by the first command that needs it")
	findings[0].Check = "server"

	strategy, _ := sqliteStrategy(context.Background(), &exam{Plan: plan})
	strategy[0].Check = "strategy"

	return append(findings, strategy...)
}

func sqliteStrategy(_ context.Context, e *exam) ([]Finding, error) {
	if e.connectionHeld() {
		return found(Error, "strategy "+e.Strategy+" needs row locks or advisory locks", "sqllock refuses it on SQLite",
			"use strategy cas"), nil
	}

	return fine("%s works on SQLite", e.Strategy), nil
}

func sqliteJournal(ctx context.Context, e *exam) ([]Finding, error) {
	var (
		mode        string
		synchronous int
	)

	err := e.one(ctx, `SELECT journal_mode, synchronous FROM pragma_journal_mode, pragma_synchronous`, &mode, &synchronous)

	switch {
	case err != nil:
		return nil, err
	case mode != "wal":
		return found(Note, "the journal mode is "+mode, "readers and the writer wait for each other",
			"PRAGMA journal_mode = WAL, which the other sqllock commands do when they open the file"), nil
	case synchronous < 2:
		return found(Warning, fmt.Sprintf("synchronous is %d, less than FULL", synchronous),
			"a power cut forgets grants that were just made", "_pragma=synchronous(FULL)"), nil
	default:
		return fine("WAL, synchronous FULL"), nil
	}
}

func sqliteTimeout(ctx context.Context, e *exam) ([]Finding, error) {
	var milli int64
	if err := e.one(ctx, `PRAGMA busy_timeout`, &milli); err != nil {
		return nil, err
	}

	timeout := time.Duration(milli) * time.Millisecond

	switch {
	case timeout > e.heartbeat():
		return found(Warning, fmt.Sprintf("the busy timeout is %s, and the heartbeat %s", timeout, e.heartbeat()),
			"one renewal that waits for a writer keeps the next from being tried", "a shorter _pragma=busy_timeout(2000)"), nil
	case timeout < 100*time.Millisecond:
		return found(Warning, fmt.Sprintf("the busy timeout is %s", timeout),
			"renewals fail while anybody else writes", "_pragma=busy_timeout(2000)"), nil
	default:
		return fine("a busy timeout of %s", timeout), nil
	}
}
