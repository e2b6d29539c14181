package main

import (
	"fmt"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
)

const strategyUsage = "how the lock is kept: cas, insert, forupdate or advisory"

func strategy(name string, db databases.DB) (sqllock.Strategy, error) {
	switch name {
	case "cas":
		return cas.New(db), nil
	case "insert":
		return insert.New(db), nil
	case "forupdate":
		return forupdate.New(db), nil
	case "advisory":
		return advisory.New(db), nil
	default:
		return nil, exitError{exitUsage, fmt.Errorf("no strategy %q; there are cas, insert, forupdate and advisory", name)}
	}
}
