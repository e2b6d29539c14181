package main

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
)

// bare makes this test binary connect to a database and become a command.
const bare = "SQLLOCK_TEST_BARE"

// connectAndBecome is what a program without locks would do: connect, ask the
// server for something, and run the command.
func connectAndBecome(url string, args []string) error {
	target, err := dsn.Parse(url)
	if err != nil {
		return err
	}

	db, err := target.Open(context.Background(), true)
	if err != nil {
		return err
	}

	if _, err := db.SQL.ExecContext(context.Background(), "SELECT 1"); err != nil {
		return err
	}

	return errors.Join(db.Close(), syscall.Exec(args[0], args, os.Environ()))
}
