// Package report turns what was measured into tables, plots and verdicts, and
// puts them into documents.
package report

import (
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Samples are what was measured of one contestant, by metric, one value for
// each round or for each event.
type Samples map[string][]float64

// Row is a contestant in the table of a scenario.
type Row struct {
	Server, Name string
	// Missing says why there is nothing, or not all.
	Missing string
	// Failures are the rounds that ended with an error.
	Failures int
	Samples  Samples
}

// Results are the rows of a scenario, in the order of the table.
type Results []*Row

// Find returns the row of a contestant, or nil.
func (r Results) Find(server, name string) *Row {
	i := slices.IndexFunc(r, func(row *Row) bool { return row.Server == server && row.Name == name })
	if i < 0 {
		return nil
	}

	return r[i]
}

// Quantile is the quantile of the values, which is one of them or, between
// two, their middle: the library takes the lower one, so it is asked from both
// ends.
func Quantile(p float64, values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	lower := stat.Quantile(p, stat.Empirical, sorted, nil)

	// From the other end.
	for i := range sorted {
		sorted[i] = -sorted[i]
	}

	slices.Reverse(sorted)

	return (lower - stat.Quantile(1-p, stat.Empirical, sorted, nil)) / 2
}

// Summary is the middle of the values and their spread.
type Summary struct {
	Lower, Median, Upper float64 // quartiles
}

// Summarize returns the quartiles.
func Summarize(values []float64) Summary {
	return Summary{Quantile(0.25, values), Quantile(0.5, values), Quantile(0.75, values)}
}

// Ratios are the quotients of what was measured in the same rounds; if there
// are not as many of one as of the other, that of the medians.
func Ratios(values, against []float64) []float64 {
	if len(values) == 0 || len(against) == 0 {
		return nil
	}

	if len(values) != len(against) {
		return []float64{Quantile(0.5, values) / Quantile(0.5, against)}
	}

	ratios := make([]float64, len(values))
	for i := range values {
		ratios[i] = values[i] / against[i]
	}

	return ratios
}
