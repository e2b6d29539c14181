package report_test

import (
	"slices"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

// TestParse reads what each Format writes.
func TestParse(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		format report.Format
		value  float64
	}{
		{report.Nanoseconds, 999},
		{report.Nanoseconds, 14.4e3},
		{report.Nanoseconds, -1.5e6},
		{report.Nanoseconds, 2.49e9},
		{report.Count, 0},
		{report.Count, 1234567},
		{report.Count, 0.0003},
		{report.Bytes, 124},
		{report.Bytes, 2.5 * (1 << 10)},
		{report.Bytes, 20 << 20},
		{report.Times, 0.0522},
	} {
		text := test.format(test.value)
		if got, err := report.Parse(text); err != nil || got != test.value {
			t.Errorf("Parse(%q) = %g, %v, want %g", text, got, err, test.value)
		}
	}

	for _, text := range []string{"", "–", "12 apples", "1.5 MB", "one"} {
		if got, err := report.Parse(text); err == nil {
			t.Errorf("Parse(%q) = %g, want an error", text, got)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()

	verdicts := report.Verdicts([]report.Verdict{{Target: report.Target{Format: report.Count}}})

	document, err := report.Replace("", "pair", verdicts+"\n"+report.Table(columns(), results())+"\nby hand | and more\n")
	if err != nil {
		t.Fatal(err)
	}

	section, found := report.Section(document, "pair")
	if !found {
		t.Fatal("there is no section in what Replace made")
	}

	got, err := report.Read(section, "of its floor")
	if want := []report.Figure{{"postgres", "ours", "1.10×", report.Summary{Lower: 1, Median: 1.1, Upper: 1.2}}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Read = %v, %v, want %v", got, err, want)
	}

	got, err = report.Read(section, "pair")

	want := []report.Figure{
		{"postgres", "ours", "1.10 ms", report.Summary{Lower: 1e6, Median: 1.1e6, Upper: 1.2e6}},
		{"postgres", "floor", "1.00 ms", report.Summary{Lower: 1e6, Median: 1e6, Upper: 1e6}},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Read = %v, %v, want %v", got, err, want)
	}

	if got, err := report.Read("| server | contestant | pair |\n| a | b | 12 apples |\n", "pair"); err == nil {
		t.Errorf("Read of what is no figure = %v, want an error", got)
	}

	if got := report.StoredVerdicts(section); "| figure | server | target | measured | verdict |\n| --- | --- | --- | --- | --- |\n"+got != verdicts {
		t.Errorf("StoredVerdicts = %q, want the rows of %q", got, verdicts)
	}

	if _, found := report.Section(document, "guard"); found {
		t.Error("Section found one that is not there")
	}
}
