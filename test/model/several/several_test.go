package several_test

import (
	"fmt"
	"testing"

	"github.com/sqllock/sqllock/test/model/several"
)

// kinds are the clients that there are: for one name, for several at once, and for further ones while holding some.
var kinds = []several.Script{
	{"a"}, {"b"}, {"ab"}, {"bc"}, {"abc"}, {"a", "b"}, {"b", "a"}, {"a", "bc"}, {"ab", "c"}, {"c", "a", "b"},
}

// each calls f with every choice of n clients.
func each(n int, f func(clients []several.Script)) {
	var choose func(from int, chosen []several.Script)

	choose = func(from int, chosen []several.Script) {
		if len(chosen) == n {
			f(chosen)

			return
		}

		for i := from; i < len(kinds); i++ {
			choose(i, append(chosen[:len(chosen):len(chosen)], kinds[i]))
		}
	}

	choose(0, nil)
}

// TestNobodyIsStuck: whoever waits gets what it waits for, unless holders wait for each other in a circle.
func TestNobodyIsStuck(t *testing.T) {
	t.Parallel()

	states := 0

	for n := 1; n <= 4; n++ {
		each(n, func(clients []several.Script) {
			stuck, searched := several.Stuck(several.Passing, clients...)
			states += searched

			if stuck != "" {
				t.Errorf("clients %q can be stuck: %s", clients, stuck)
			}
		})
	}

	t.Logf("%d states", states)
}

// TestRulesThatAreBroken: the search finds what is wrong with the rules that were tried before.
func TestRulesThatAreBroken(t *testing.T) {
	t.Parallel()

	for rule, clients := range map[several.Rule][]several.Script{
		// The holder of a wants b, and is behind the one who waits for a and b.
		several.PassingNone: {{"a", "b"}, {"ab"}},
		// It passes that one, and not the one behind.
		several.PassingOne: {{"a", "b"}, {"ab"}, {"b"}},
	} {
		t.Run(fmt.Sprint(rule), func(t *testing.T) {
			t.Parallel()

			if stuck, states := several.Stuck(rule, clients...); stuck == "" {
				t.Errorf("none of %d states of clients %q is stuck, want one", states, clients)
			}
		})
	}
}
