// Package catalog lists the strategies, for tests of each of them.
package catalog

import (
	"slices"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
)

// Strategy is one by its name.
type Strategy struct {
	Name string
	Make func(databases.DB) strategies.Strategy
}

// Leased are those whose locks are leases. TiDB and SQLite carry these.
func Leased() []Strategy {
	return []Strategy{
		{"cas", func(db databases.DB) strategies.Strategy { return cas.New(db) }},
		{"insert", func(db databases.DB) strategies.Strategy { return insert.New(db) }},
	}
}

// ConnectionHeld are those whose locks end with a database session.
func ConnectionHeld() []Strategy {
	return []Strategy{
		{"forupdate", func(db databases.DB) strategies.Strategy { return forupdate.New(db) }},
		{"advisory", func(db databases.DB) strategies.Strategy { return advisory.New(db) }},
	}
}

// Rivals are the other strategies that a database carries.
func Rivals(d databases.Dialect, name string) []Strategy {
	others := All()
	if d == databases.SQLite || d == databases.TiDB {
		others = Leased()
	}

	return slices.DeleteFunc(others, func(s Strategy) bool { return s.Name == name })
}

// All are both.
func All() []Strategy { return slices.Concat(Leased(), ConnectionHeld()) }
