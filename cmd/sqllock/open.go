package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
)

// embeddedTime bounds the migration of the embedded file, which a process that
// writes to it keeps waiting.
const embeddedTime = 10 * time.Second

// open opens the database for locks. The embedded file is migrated, because
// nobody else would; what somebody named is theirs to migrate. say is told
// where locks are kept if nobody said that.
func open(ctx context.Context, target dsn.Target, say func(string)) (*dsn.Database, error) {
	db, err := target.Open(ctx, false)
	if err != nil {
		return nil, exitError{exitUnavailable, err}
	}

	if !target.Embedded {
		return db, nil
	}

	ctx, cancel := context.WithTimeout(ctx, embeddedTime)
	defer cancel()

	if _, err := migrate.Up(ctx, db); err != nil {
		return nil, exitError{exitUnavailable, errors.Join(fmt.Errorf("migrate %s: %w", target, err), db.Close())}
	}

	// Each time: who forgot to name the server on one of the machines would
	// believe to have locks between them, and sees only what came last.
	say(fmt.Sprintf("no --%s and no %s: locks are kept in %s, for this machine and user only",
		dsn.Flag, dsn.Variable, target.Path))

	return db, nil
}
