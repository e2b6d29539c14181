package report_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

func columns() []report.Column {
	return []report.Column{
		{Title: "pair", Metric: "pair", Format: report.Nanoseconds},
		{Title: "of its floor", Metric: "pair", Format: report.Times, Against: map[string]string{"postgres": "floor"}},
		{Title: "pairs/s", Metric: "rate", Format: report.Count, Bare: true},
	}
}

func TestTable(t *testing.T) {
	t.Parallel()

	want := `| server | contestant | pair | of its floor | pairs/s |
| --- | --- | --- | --- | --- |
| postgres | ours | 1.10 ms (1.00 ms – 1.20 ms) | 1.10× (1.00× – 1.20×) | 310 |
| postgres | floor | 1.00 ms | – | – |
| redis | theirs | not measured: no redis / here |  |  |
`

	if got := report.Table(columns(), results()); got != want {
		t.Errorf("Table =\n%s\nwant\n%s", got, want)
	}
}

func TestTableSaysWhatEndedEarly(t *testing.T) {
	t.Parallel()

	rows := results()
	rows[0].Missing = "it broke"

	if got := report.Table(columns(), rows); !strings.HasSuffix(got, "\nours on postgres: not all rounds: it broke\n") {
		t.Errorf("Table =\n%s\nwant the reason at its end", got)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		format report.Format
		value  float64
		want   string
	}{
		{report.Nanoseconds, 999, "999 ns"},
		{report.Nanoseconds, 1234, "1.23 µs"},
		{report.Nanoseconds, -1.5e6, "-1.50 ms"},
		{report.Nanoseconds, 9.56e9, "9.56 s"},
		{report.Count, 0, "0"},
		{report.Count, 40, "40"},
		{report.Count, 2.011, "2.01"},
		{report.Count, 999.9, "1,000"},
		{report.Count, 1234567, "1,234,567"},
		{report.Count, -12345, "-12,345"},
		{report.Bytes, 124, "124 B"},
		{report.Bytes, 20 << 20, "20.0 MiB"},
		{report.Times, 0.215, "0.215×"},
		{report.Times, 0.02801, "0.0280×"},
		{report.Times, 1.1, "1.10×"},
	} {
		if got := test.format(test.value); got != test.want {
			t.Errorf("%g is written as %q, want %q", test.value, got, test.want)
		}
	}
}
