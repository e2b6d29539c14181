//go:build unix

package stress

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Report prints what became of the pairs, and says whether all are well.
func Report(out io.Writer, outcomes []Outcome, lease time.Duration) bool {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\npair\tchecked\tgrants\tfaults\ttaken\tunknown\tdeath\tfree\t\t\n")

	well := true

	for _, o := range outcomes {
		verdict := "ok"
		if o.Err != nil || len(o.Violations) > 0 {
			verdict, well = "WRONG", false
		}

		death := "-"
		if o.Tally.Deaths > 0 {
			death = fmt.Sprintf("%.2f", o.Tally.Worst.Seconds()/lease.Seconds())
		}

		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%.2f\t%s\t\n", o.Pair, o.Tally.checked(), o.Tally.Grants, o.Tally.struck(),
			o.Tally.Takeovers, o.Tally.Unknown, death, o.Tally.Free.Seconds()/lease.Seconds(), verdict)
	}

	_ = table.Flush()

	fmt.Fprintf(out, `
checked: calls and answers. taken: grants after one that was not released.
unknown: calls whose outcome the caller did not learn. death: the longest time
from the death of a holder, with nothing else out of order, to the next grant.
free: the longest time from the end of the last worker until every name had been
free. Both in leases of %s.
`, lease)

	for _, group := range byEngine(outcomes, func(o Outcome) string { return o.Pair.Engine }) {
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
			fmt.Fprintf(out, "%s: the run failed: %v\n", o.Pair, o.Err)
		}

		if o.Repeat != "" {
			fmt.Fprintf(out, "%s: repeat it with: %s\n", o.Pair, o.Repeat)
		}
	}

	return well
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

// ReportVariants prints what became of the known-bad variants, and says whether all were caught.
func ReportVariants(out io.Writer, found []Caught) bool {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "known-bad variant\ton\tcaught by\n")

	caught := 0

	for _, c := range found {
		by := "NOT CAUGHT"

		switch {
		case c.Err != nil:
			by = "the run failed: " + c.Err.Error()
		case len(c.By) > 0:
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

	return caught == len(found)
}
