// Package leftovers says which rows strategies keep beside the record of a name. It
// is apart from them because any strategy's reaper, and whoever forces a release by
// any strategy, takes such rows along: names are shared by all strategies, and the
// one that left a row may not be in use any more.
package leftovers

import "github.com/sqllock/sqllock/strategies/internal/grants"

// All are those of all strategies. Each of them gives them to grants.New.
func All() []grants.Table[grants.Leftover] {
	return []grants.Table[grants.Leftover]{Insert}
}
