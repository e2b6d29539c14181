package prove

import (
	"slices"
	"strings"

	"github.com/sqllock/sqllock/sqllocktest"
)

// promise is a sentence of docs/guarantees.md, and the cases that show it: "group/" stands for those of a group that no
// other promise names. A test compares the names with that page's table.
type promise struct {
	name  string
	cases []string
}

// historyPrefix is that of the checks of the history.
const historyPrefix = "history/"

func promises() []promise {
	return []promise{
		{"one at a time", []string{
			"exclusion/", "lease/", "rivals/", "reentrancy/", "min hold/", "lock delay/", historyPrefix + checkWindows,
		}},
		{"tokens grow", []string{"token/", "raise/", historyPrefix + checkTokens}},
		{"your own grant only", []string{"owner/", "once/", "release/", "release in a transaction/"}},
		{"loss is reported", []string{
			"loss/", "ambiguity/unanswered renewals move nothing", "ambiguity/renewal error ends the session",
			"ambiguity/renewal that failed", "ambiguity/renewal without an answer", "renewal/", "extend/", "max hold/", "do/",
			"force release/", "session/",
		}},
		{"the trust window", []string{"trust/"}},
		{"no orphans", []string{"ambiguity/", historyPrefix + checkFree}},
		{"Close leaves nothing", []string{"close/", "session/close after its end leaves nothing", historyPrefix + checkClose}},
		{"silence is nobody's lock", []string{"ambiguity/acquire that was cancelled under way is given back"}},
		{"a wait outlasts a restart", []string{"waiting/for a server that takes no more connections"}},
		{"guard", []string{"guard/", historyPrefix + checkGuard}},
		{"a try does not wait", []string{"try/"}},
		{"first come, first served", []string{"line/", "waiters/in the order of arrival"}},
		{"waiting is cheap", []string{"waiting/"}},
		{"tokens that are handed on", []string{"hand-off/"}},
		{"many in one statement", []string{"batch/"}},
		{"permits", []string{"permits/"}},
		{"many readers or one writer", []string{"shared/"}},
		{"several names at once", []string{"several/"}},
		{"once per tick", []string{"tick/", "mark/", "reaper/leaves a tick alone"}},
		{"leaders", []string{"request/"}},
		{"a deadlock ends", []string{"waiters/a deadlock ends the youngest wait", "waiters/a wait that will end is no deadlock"}},
		{"no wake-up is missed, nobody in line is forgotten", []string{
			"waiting/a release is heard", "waiting/a release after a minimum hold is heard", "waiting/a release in a transaction is heard",
		}},
		{"names", []string{"names/"}},
		{"nothing silent", []string{
			"features/", "calls/", "shared/refused where there are none", "several/refused where each lock holds a connection",
		}},
		{"who holds and who waits is shown", []string{"held error/", "holders/", "inspect/", "waiters/"}},
		{"the reaper takes nothing that is held", []string{
			"reaper/", "idle/leaves who holds it", "idle/leaves readers", "idle/leaves a minimum hold", "idle/leaves what is guarded",
		}},
		{"tokens grow over the removal of idle rows", []string{"idle/"}},
	}
}

// Promises are the names of all, in the order of docs/guarantees.md.
func Promises() []string {
	var names []string

	for _, p := range promises() {
		names = append(names, p.name)
	}

	return names
}

// promiseOf is the promise that a case shows; empty if there is none.
func promiseOf(name string) string {
	group, _, _ := strings.Cut(name, "/")
	of := ""

	for _, p := range promises() {
		if slices.Contains(p.cases, name) {
			return p.name
		}

		if slices.Contains(p.cases, group+"/") {
			of = p.name
		}
	}

	return of
}

// Cases are the names of all cases and checks that contain a text.
func Cases(containing string) []string {
	names := []string{historyPrefix + checkWindows, historyPrefix + checkTokens, historyPrefix + checkGuard, historyPrefix + checkClose, historyPrefix + checkFree}

	return slices.DeleteFunc(append(names, sqllocktest.Cases()...), func(name string) bool { return !strings.Contains(name, containing) })
}

// Left is how many of the cases that are about a promise have no outcome yet.
func Left(cases []string, outcomes []Outcome, promise string) (left int) {
	for _, name := range cases {
		if promiseOf(name) == promise {
			left++
		}
	}

	for _, o := range outcomes {
		if o.Promise == promise {
			left--
		}
	}

	return left
}
