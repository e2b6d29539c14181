//go:build unix

package stress

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Verdict is what a report comes to. Of several the largest counts.
type Verdict int

// The verdicts.
const (
	// Well: nothing was wrong, and all was run.
	Well Verdict = iota
	// NotRun: some of it could not be run, which says nothing of the locks.
	NotRun
	// Wrong: a promise was broken, or a known-bad variant was not caught.
	Wrong
)

func (v Verdict) String() string {
	return [...]string{"ok", "-", "WRONG"}[v]
}

// verdict judges a pair.
func (o Outcome) verdict() Verdict {
	switch {
	case len(o.Violations) > 0:
		return Wrong
	case o.Err != nil:
		return NotRun
	default:
		return Well
	}
}

// verdict judges what became of a variant.
func (c Caught) verdict() Verdict {
	switch {
	case c.Err != nil:
		return NotRun
	case len(c.By) == 0:
		return Wrong
	default:
		return Well
	}
}

// Report prints what became of the pairs, and returns the verdict on all of them.
func Report(out io.Writer, outcomes []Outcome, lease time.Duration) Verdict {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\npair\tchecked\tgrants\tfaults\ttaken\tunknown\tdeath\tfree\t\t\n")

	worst := Well

	for _, o := range outcomes {
		worst = max(worst, o.verdict())

		death := "-"
		if o.Tally.Deaths > 0 {
			death = fmt.Sprintf("%.2f", o.Tally.Worst.Seconds()/lease.Seconds())
		}

		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%.2f\t%s\t\n", o.Pair, o.Tally.checked(), o.Tally.Grants, o.Tally.struck(),
			o.Tally.Takeovers, o.Tally.Unknown, death, o.Tally.Free.Seconds()/lease.Seconds(), o.verdict())
	}

	_ = table.Flush()

	fmt.Fprintf(out, `
checked: calls and answers. taken: grants after one that was not released.
unknown: calls whose outcome the caller did not learn. death: the longest time
from the death of a holder, with nothing else out of order, to the next grant.
free: the longest time from the end of the last worker until every name had been
free. Both in leases of %s. At the end "-" is what could not be run, or not to
the end: it says nothing of the locks.
`, lease)

	reportOrder(out, outcomes, lease)

	for _, group := range byLane(outcomes, func(o Outcome) string { return o.Pair.Engine }) {
		reportFaults(out, group)
	}

	for _, o := range outcomes {
		const most = 5

		for i, v := range o.Violations {
			if i == most {
				fmt.Fprintf(out, "%s: and %d more\n", o.Pair, len(o.Violations)-most)

				break
			}

			fmt.Fprintf(out, "%s: %s\n", o.Pair, v)
		}

		if o.Err != nil {
			fmt.Fprintf(out, "%s: could not run, or not to the end: %v\n", o.Pair, o.Err)
		}

		if o.Repeat != "" {
			fmt.Fprintf(out, "%s: repeat it with: %s\n", o.Pair, o.Repeat)
		}
	}

	return worst
}

// reportOrder prints how far those who waited were served in the order in which they came.
func reportOrder(out io.Writer, outcomes []Outcome, lease time.Duration) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\npair\tgrants out of order\tin one wait\tidle\t\n")

	for _, o := range outcomes {
		fmt.Fprintf(table, "%s\t%d of %d\t%d\t%.2f\t\n",
			o.Pair, o.Tally.Disordered, o.Tally.Contested, o.Tally.Overtaken, o.Tally.Idle.Seconds()/lease.Seconds())
	}

	_ = table.Flush()

	fmt.Fprint(out, `
grants out of order: of those in phases without a fault for which another
process waited; in one wait: the most that one had to let go first; idle: the
longest time that a name was free while somebody waited for it, in leases.
`)
}

// reportFaults prints how often each fault struck the pairs of a database.
func reportFaults(out io.Writer, outcomes []Outcome) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nfaults on %s\t", outcomes[0].Pair.Engine)

	for _, o := range outcomes {
		fmt.Fprintf(table, "%s\t", o.Pair.Strategy)
	}

	fmt.Fprintln(table)

	for _, f := range Faults() {
		if !f.of(outcomes[0].Pair) {
			continue
		}

		fmt.Fprintf(table, "%s\t", f)

		for _, o := range outcomes {
			fmt.Fprintf(table, "%d\t", o.Tally.Faults[f])
		}

		fmt.Fprintln(table)
	}

	_ = table.Flush()
}

// ReportVariants prints what became of the known-bad variants, and returns the verdict on all of them.
func ReportVariants(out io.Writer, found []Caught) Verdict {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "known-bad variant\ton\tcaught by\n")

	caught, worst := 0, Well

	for _, c := range found {
		by := "NOT CAUGHT"
		worst = max(worst, c.verdict())

		switch c.verdict() {
		case Wrong:
		case NotRun:
			by = "could not run: " + c.Err.Error()
		case Well:
			caught++
			by = c.By[0]

			if more := len(c.By) - 1; more > 0 {
				by += fmt.Sprintf(" + %d", more)
			}
		}

		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Variant.Name, c.Variant.Pair, by)
	}

	_ = table.Flush()

	fmt.Fprintf(out, "%d of %d known-bad variants were caught\n", caught, len(found))

	return worst
}
