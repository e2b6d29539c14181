// Package strategies lists the strategies, for tests of each of them.
package strategies

import (
	"slices"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
)

// Strategy is one by its name.
type Strategy struct {
	Name string
	Make func(databases.DB) sqllock.Strategy
}

// Leased are those whose locks are leases. SQLite carries these.
func Leased() []Strategy {
	return []Strategy{
		{"cas", func(db databases.DB) sqllock.Strategy { return cas.New(db) }},
		{"insert", func(db databases.DB) sqllock.Strategy { return insert.New(db) }},
	}
}

// ConnectionHeld are those whose locks end with a database session.
func ConnectionHeld() []Strategy {
	return []Strategy{
		{"forupdate", func(db databases.DB) sqllock.Strategy { return forupdate.New(db) }},
		{"advisory", func(db databases.DB) sqllock.Strategy { return advisory.New(db) }},
	}
}

// All are both.
func All() []Strategy { return slices.Concat(Leased(), ConnectionHeld()) }
