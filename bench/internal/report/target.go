package report

import (
	"strings"
)

// Bound is what a target asks of a value.
type Bound struct {
	// AtLeast turns it round: values are to be at most that otherwise.
	AtLeast bool
	// Below leaves the bound itself out.
	Below bool
	Value float64
}

func (b Bound) met(value float64) bool {
	switch {
	case b.AtLeast:
		return value >= b.Value
	case b.Below:
		return value < b.Value
	default:
		return value <= b.Value
	}
}

func (b Bound) sign() string {
	switch {
	case b.AtLeast:
		return "≥ "
	case b.Below:
		return "< "
	default:
		return "≤ "
	}
}

// Target is something that a contestant should reach.
type Target struct {
	Server, Name string
	Metric       string
	// At is the quantile that must reach it; zero is the median.
	At float64
	// AgainstServer and Against are the contestant that the ratio is to. The
	// bound is on the ratio then.
	AgainstServer, Against string
	Bound                  Bound
	Format                 Format
	// Title says what is measured.
	Title string
	// Reason says where the bound comes from, if it is not a round figure.
	Reason string
}

// Verdict is what became of a target.
type Verdict struct {
	Target   Target
	Measured string
	Word     string
}

// The words of verdicts.
const (
	Met    = "met"
	Missed = "missed"
	// Unclear is missed or met by less than the runs differ.
	Unclear     = "unclear"
	NotMeasured = "not measured"
)

// Judge compares what was measured with the target.
func (t Target) Judge(results Results) Verdict {
	verdict := Verdict{Target: t, Word: NotMeasured, Measured: "–"}

	row := results.Find(t.Server, t.Name)
	if row == nil || len(row.Samples[t.Metric]) == 0 {
		verdict.Measured = absent(row, t.Name)

		return verdict
	}

	values := row.Samples[t.Metric]

	if t.Against != "" {
		other := results.Find(t.AgainstServer, t.Against)
		if other == nil || len(other.Samples[t.Metric]) == 0 {
			verdict.Measured = absent(other, t.Against)

			return verdict
		}

		values = Ratios(values, other.Samples[t.Metric])
	}

	if t.At != 0 {
		value := Quantile(t.At, values)
		verdict.Measured, verdict.Word = t.Format(value), word(t.Bound.met(value))

		return verdict
	}

	s := Summarize(values)
	verdict.Measured, verdict.Word = t.Format(s.Median), word(t.Bound.met(s.Median))

	if lower, upper := t.Format(s.Lower), t.Format(s.Upper); lower != upper {
		verdict.Measured += " (" + lower + " – " + upper + ")"
	}

	if t.Bound.met(s.Lower) != t.Bound.met(s.Upper) {
		verdict.Word = Unclear + ", median " + verdict.Word
	}

	return verdict
}

func absent(row *Row, name string) string {
	switch {
	case row == nil:
		return name + " takes no part"
	case row.Missing != "":
		return name + ": " + row.Missing
	default:
		return name + " has no such figure"
	}
}

func word(met bool) string {
	if met {
		return Met
	}

	return Missed
}

// VerdictsHead begins a table of verdicts.
const VerdictsHead = "| figure | server | target | measured | verdict |\n| --- | --- | --- | --- | --- |\n"

// Verdicts writes them as Markdown.
func Verdicts(verdicts []Verdict) string {
	var out strings.Builder

	out.WriteString(VerdictsHead)

	for _, v := range verdicts {
		target := v.Target.Bound.sign() + v.Target.Format(v.Target.Bound.Value)

		if v.Target.Against != "" {
			target += " of " + v.Target.Against
			if v.Target.AgainstServer != v.Target.Server {
				target += " on " + v.Target.AgainstServer
			}
		}

		if v.Target.Reason != "" {
			target += " (" + v.Target.Reason + ")"
		}

		line(&out, []string{v.Target.Name + ": " + v.Target.Title, v.Target.Server, target, v.Measured, "**" + v.Word + "**"})
	}

	return out.String()
}

// StoredVerdicts are the rows that Verdicts wrote into a section.
func StoredVerdicts(section string) string {
	_, table, found := strings.Cut(section, VerdictsHead)
	if !found {
		return ""
	}

	rows, _, _ := strings.Cut(table, "\n\n")

	return strings.TrimSuffix(rows, "\n") + "\n"
}
