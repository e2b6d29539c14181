//go:build unix

package stress

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestReportsFitATerminal checks that the tables have no line of more than 80 columns, with figures of a long run.
func TestReportsFitATerminal(t *testing.T) {
	t.Parallel()

	var (
		outcomes []Outcome
		caught   []Caught
	)

	for _, pair := range Pairs([]string{"postgres", "mysql", "mariadb", "sqlite"}) {
		o := Outcome{Pair: pair, Tally: tally{
			Operations: map[operation]int{opTold: 1234567}, Grants: 123456, Faults: map[Fault]int{}, Unknown: 12345, Takeovers: 12345,
			Contested: 123456, Disordered: 1234, Overtaken: 12, Idle: 1234 * time.Millisecond,
			Worst: 1234 * time.Millisecond, Deaths: 1, Free: 2345 * time.Millisecond,
		}}

		for _, f := range Faults() {
			o.Tally.Faults[f] = 1234
		}

		outcomes = append(outcomes, o)
	}

	for _, v := range Variants() {
		caught = append(caught, Caught{Variant: v, By: []string{checkLinear, checkWindows, checkGuard, checkTold}})
	}

	var out strings.Builder

	if r, v := Report(&out, outcomes, time.Second), ReportVariants(&out, caught); r != Well || v != Well {
		t.Errorf("the reports of what is well say %s and %s", r, v)
	}

	outcomes[4].Err = own(errors.New("bind: address already in use"))
	caught[4].Err = own(errors.New("timeout"))

	if r, v := Report(io.Discard, outcomes, time.Second), ReportVariants(io.Discard, caught); r != NotRun || v != NotRun {
		t.Errorf("the reports of what could not be run say %s and %s", r, v)
	}

	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("more than 80 columns: %s", line)
		}
	}

	outcomes[3].Violations = []violation{{Check: checkGuard, Name: "a", Text: "a write was lost"}}
	caught[3].By = nil

	if r, v := Report(&out, outcomes, time.Second), ReportVariants(&out, caught); r != Wrong || v != Wrong {
		t.Errorf("the reports of what is wrong say %s and %s", r, v)
	}
}
