package prove

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

// TestOutcomes reads what package testing says of cases that run at once.
func TestOutcomes(t *testing.T) {
	t.Parallel()

	said := "\x16=== RUN   suite\n\x16=== RUN   suite/locks/guard/passes\n\x16=== PAUSE suite/locks/guard/passes\n" +
		"\x16=== RUN   suite/locks/try/does_not_wait_for_a_guard\n\x16=== CONT  suite/locks/guard/passes\n" +
		"    suite_guard.go:12: Guard() = nil\n        and more\n\x16=== NAME  suite/locks/try/does_not_wait_for_a_guard\n" +
		"    outsider.go:3: not set up: denied\n\x16--- SKIP: suite/locks/try/does_not_wait_for_a_guard (0.10s)\n" +
		"\x16=== NAME  suite/locks/guard/passes\n    suite_guard.go:13: again\n\x16--- FAIL: suite/locks/guard/passes (0.20s)\n" +
		"\x16--- PASS: suite/reaper/leaves_a_tick_alone (0.00s)\n\x16=== RUN   history/guard\n    check.go:1: " + sqllock.ErrTooManyConnections.Error() + "\n\x16--- FAIL: history/guard (1.00s)\n" +
		"\x16=== RUN   suite/locks/lease/one\n    suite.go:1: no answer within 386ms: " + sqllock.ErrUnreachable.Error() + ", want the lock\n\x16--- FAIL: suite/locks/lease/one (1.00s)\n" +
		"\x16=== RUN   suite/locks/lease/two\n    suite.go:1: " + sqllock.ErrUnreachable.Error() + "\n    suite.go:2: two hold it\n\x16--- FAIL: suite/locks/lease/two (1.00s)\n" +
		"\x16=== RUN   suite/locks/batch/tokens_grow\n    suite_batch.go:20: the strategy has no Batcher\n\x16--- SKIP: suite/locks/batch/tokens_grow (0.00s)\n" +
		"\x16--- FAIL: suite (0.30s)\n\x16=== NAME  \nFAIL\n"

	names := []string{"guard/passes", "try/does not wait for a guard", "reaper/leaves a tick alone", "history/guard", "lease/one", "lease/two", "batch/tokens grow"}
	want := []Outcome{
		{"try/does not wait for a guard", "a try does not wait", NotRun, "denied", true},
		{"guard/passes", "guard", Broken, "suite_guard.go:12: Guard() = nil\nand more\nsuite_guard.go:13: again", true},
		{"reaper/leaves a tick alone", "once per tick", Kept, "", true},
		{"history/guard", "guard", NotRun, "the server took no more connections", true},
		{
			"lease/one", "one at a time", NotRun,
			"the server did not answer in the time that the case has: suite.go:1: no answer within 386ms: " + sqllock.ErrUnreachable.Error() + ", want the lock", true,
		},
		{"lease/two", "one at a time", Broken, "suite.go:1: " + sqllock.ErrUnreachable.Error() + "\nsuite.go:2: two hold it", true},
		{"batch/tokens grow", "many in one statement", NotRun, "the strategy has no Batcher", false},
	}

	var got []Outcome

	rest, err := outcomes(strings.NewReader(said), names, func(o Outcome) { got = append(got, o) })
	if err != nil || rest != "FAIL" {
		t.Errorf("outcomes() = %q, %v, want FAIL, nil", rest, err)
	}

	if !slices.Equal(got, want) {
		t.Errorf("outcomes() told\n%+v, want\n%+v", got, want)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()

	of := func(outcomes ...Outcome) PromiseVerdict {
		t.Helper()

		for i := range outcomes {
			outcomes[i].Promise = "guard"
		}

		verdicts := Verdicts(outcomes)
		if len(verdicts) != 1 {
			t.Fatalf("Verdicts() = %v, want one", verdicts)
		}

		return verdicts[0]
	}

	kept, broken := Outcome{Verdict: Kept, Concerns: true}, Outcome{Verdict: Broken, Concerns: true}
	missing, other := Outcome{Verdict: NotRun, Concerns: true}, Outcome{Verdict: NotRun}

	for _, c := range []struct {
		cases []Outcome
		want  PromiseVerdict
	}{
		{[]Outcome{kept, kept}, PromiseVerdict{"guard", Kept, 2, 0}},
		{[]Outcome{kept, broken, kept, missing}, PromiseVerdict{"guard", Broken, 3, 1}},
		{[]Outcome{missing, kept, other}, PromiseVerdict{"guard", Kept, 1, 1}},
		{[]Outcome{missing, other}, PromiseVerdict{"guard", NotRun, 0, 1}},
		{[]Outcome{other}, PromiseVerdict{"guard", NotRun, 0, 0}},
	} {
		if got := of(c.cases...); got != c.want {
			t.Errorf("Verdicts(%v) = %+v, want %+v", c.cases, got, c.want)
		}
	}
}

// TestChecks has histories that are in order, and some that are not.
func TestChecks(t *testing.T) {
	t.Parallel()

	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	of := func(token int64, called, returned, until int) *grant {
		return &grant{name: "a", token: token, called: at(called), returned: at(returned), until: at(until)}
	}

	for _, c := range []struct {
		what                string
		grants              []*grant
		overlaps, disorders int
	}{
		{"one after the other", []*grant{of(1, 0, 1, 5), of(2, 2, 6, 9), of(3, 9, 10, 11)}, 0, 0},
		{"asked for at once", []*grant{of(2, 0, 6, 9), of(1, 0, 1, 5)}, 0, 0},
		{"two at once", []*grant{of(1, 0, 1, 5), of(2, 2, 4, 9)}, 1, 0},
		{"one within a long one, and the next too", []*grant{of(1, 0, 1, 50), of(2, 2, 4, 9), of(3, 10, 11, 12)}, 2, 0},
		{"a smaller token later", []*grant{of(5, 0, 1, 2), of(4, 3, 4, 5)}, 0, 1},
		{"the same token", []*grant{of(5, 0, 1, 2), of(5, 0, 4, 5)}, 0, 1},
		{"of other names", []*grant{of(5, 0, 1, 9), {name: "b", token: 5, called: at(3), returned: at(4), until: at(5)}}, 0, 0},
	} {
		if found := overlaps(c.grants); len(found) != c.overlaps {
			t.Errorf("%s: overlaps() = %q, want %d", c.what, found, c.overlaps)
		}

		if found := disorder(c.grants); len(found) != c.disorders {
			t.Errorf("%s: disorder() = %q, want %d", c.what, found, c.disorders)
		}
	}
}

// TestPassed has a guarded write that is committed at 10, and a grant with a larger token before or after that.
func TestPassed(t *testing.T) {
	t.Parallel()

	guarded := &grant{name: "a", token: 5, returned: time.UnixMilli(1), committing: time.UnixMilli(10)}

	for _, c := range []struct {
		other *grant
		want  int
	}{
		{&grant{name: "a", token: 6, returned: time.UnixMilli(9)}, 1},
		{&grant{name: "a", token: 6, returned: time.UnixMilli(11)}, 0},
		{&grant{name: "a", token: 4, returned: time.UnixMilli(9)}, 0},
		{&grant{name: "b", token: 6, returned: time.UnixMilli(9)}, 0},
	} {
		if found := passed([]*grant{c.other, guarded}); len(found) != c.want {
			t.Errorf("passed() beside %+v = %q, want %d", c.other, found, c.want)
		}
	}
}
