//go:build unix

package stress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// Pair is a strategy on a database: "postgres/cas".
type Pair struct {
	Engine   string `json:"engine"` // postgres, mysql, mariadb, tidb or sqlite
	Strategy string `json:"strategy"`
}

func (p Pair) String() string { return p.Engine + "/" + p.Strategy }

// Pairs returns all pairs of the given databases.
func Pairs(engines []string) []Pair {
	var pairs []Pair

	for _, engine := range engines {
		carried := catalog.All()
		if engine == "sqlite" || engine == "tidb" {
			carried = catalog.Leased()
		}

		for _, strategy := range carried {
			pairs = append(pairs, Pair{engine, strategy.Name})
		}
	}

	return pairs
}

// ParsePairs reads "postgres/cas,mysql" among the pairs of the given databases: a database or a strategy alone stands
// for all of its pairs.
func ParsePairs(text string, engines []string) ([]Pair, error) {
	all := Pairs(engines)

	if text == "" {
		return all, nil
	}

	var pairs []Pair

	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)

		matching := slices.DeleteFunc(slices.Clone(all), func(p Pair) bool {
			return p.Engine != word && p.Strategy != word && p.String() != word
		})
		if len(matching) == 0 {
			return nil, fmt.Errorf("there is no pair %q; there are %v", word, all)
		}

		pairs = append(pairs, matching...)
	}

	slices.SortStableFunc(pairs, func(a, b Pair) int {
		return cmp.Compare(slices.Index(all, a), slices.Index(all, b))
	})

	return slices.Compact(pairs), nil
}

// strategy makes the pair's strategy.
func (p Pair) strategy(db databases.DB) strategies.Strategy {
	for _, s := range catalog.All() {
		if s.Name == p.Strategy {
			return s.Make(db)
		}
	}

	panic("no strategy " + p.Strategy)
}

// connectionHeld says that locks of the pair end with their database session.
func (p Pair) connectionHeld() bool { return p.Strategy == "forupdate" || p.Strategy == "advisory" }

// hasNetwork says that clients reach the database over a network.
func (p Pair) hasNetwork() bool { return p.Engine != "sqlite" }
