package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// What is said of a recovery is about the pause that the next attempt finds, and why.
func TestSaid(t *testing.T) {
	t.Parallel()

	const longest = time.Minute

	for name, test := range map[string]struct {
		of   sqllock.Recovery
		want string
	}{
		"nothing": {sqllock.Recovery{Server: "a", Noted: "a", Longest: longest}, "locks are granted; after a fail-over nothing is granted for 1m0s"},
		"a pause": {
			sqllock.Recovery{Server: "a", Noted: "a", Longest: longest, Remaining: time.Second, Reason: "because"}, "nothing is granted for another 1s, until",
		},
		"another server": {sqllock.Recovery{Server: "b", Noted: "a", Longest: longest}, "nothing is granted for 1m0s, counted from the next attempt"},
		"another server, in the pause of one before": {
			sqllock.Recovery{Server: "b", Noted: "a", Longest: longest, Remaining: time.Second, Reason: "because"},
			"nothing is granted for 1m0s, counted from the next attempt to acquire a lock: another server has become the primary",
		},
		"a standby that was promoted, whose unlogged table is empty": {
			sqllock.Recovery{Server: "b", Noted: "a", Longest: longest, Crashed: true, Asynchronous: true},
			"nothing is granted for 1m0s, counted from the next attempt to acquire a lock: another server has become the primary",
		},
		"a crash": {
			sqllock.Recovery{Server: "a", Noted: "a", Longest: longest, Crashed: true, Asynchronous: true},
			"nothing is granted for 1m0s, counted from the next attempt to acquire a lock: the server has crashed",
		},
	} {
		if said := Said(test.of); !strings.HasPrefix(said, test.want) {
			t.Errorf("%s: %q, want %q", name, said, test.want)
		}
	}
}
