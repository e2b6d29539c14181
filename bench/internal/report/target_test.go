package report_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

func results() report.Results {
	return report.Results{
		{Server: "postgres", Name: "ours", Samples: report.Samples{"pair": {1.2e6, 1.0e6, 1.1e6}, "rate": {300, 310, 320}}},
		{Server: "postgres", Name: "floor", Samples: report.Samples{"pair": {1.0e6, 1.0e6, 1.0e6}}},
		{Server: "redis", Name: "theirs", Missing: "no redis | here", Samples: report.Samples{}},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		target report.Target
		word   string
		text   string
	}{
		"at least, met": {
			report.Target{Metric: "rate", Format: report.Count, Bound: report.Bound{AtLeast: true, Value: 300}},
			report.Met, "310 (300 – 320)",
		},
		"at least, missed": {
			report.Target{Metric: "rate", Format: report.Count, Bound: report.Bound{AtLeast: true, Value: 1000}},
			report.Missed, "310 (300 – 320)",
		},
		"below": {
			report.Target{Metric: "rate", At: 1, Format: report.Count, Bound: report.Bound{Below: true, Value: 320}},
			report.Missed, "320",
		},
		"ratio within the spread": {
			report.Target{
				Metric: "pair", Format: report.Times, AgainstServer: "postgres", Against: "floor",
				Bound: report.Bound{Value: 1.1},
			},
			report.Unclear + ", median " + report.Met, "1.10× (1.00× – 1.20×)",
		},
		"no opponent": {
			report.Target{
				Metric: "rate", Format: report.Times, AgainstServer: "redis", Against: "theirs",
				Bound: report.Bound{AtLeast: true, Value: 1.5},
			},
			report.NotMeasured, "theirs: no redis | here",
		},
		"nobody": {
			report.Target{
				Metric: "rate", Format: report.Times, AgainstServer: "postgres", Against: "somebody",
				Bound: report.Bound{Value: 1},
			},
			report.NotMeasured, "somebody takes no part",
		},
	} {
		test.target.Server, test.target.Name = "postgres", "ours"

		got := test.target.Judge(results())
		if got.Word != test.word || got.Measured != test.text {
			t.Errorf("%s: Judge = %q, %q; want %q, %q", name, got.Word, got.Measured, test.word, test.text)
		}
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()

	target := report.Target{
		Server: "postgres", Name: "ours", Title: "pair", Metric: "pair", Format: report.Times,
		AgainstServer: "redis", Against: "theirs", Bound: report.Bound{AtLeast: true, Value: 1.5},
	}
	want := "| ours: pair | postgres | ≥ 1.50× of theirs on redis | theirs: no redis / here | **not measured** |"

	if got := report.Verdicts([]report.Verdict{target.Judge(results())}); !strings.Contains(got, want) {
		t.Errorf("Verdicts =\n%s\nwant a line\n%s", got, want)
	}
}
