package report_test

import (
	"math"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

func TestQuantile(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		p      float64
		values []float64
		want   float64
	}{
		{0.5, []float64{7}, 7},
		{0.99, []float64{7}, 7},
		{0.5, []float64{3, 1}, 2},
		{0.5, []float64{3, 1, 2}, 2},
		{0.5, []float64{4, 1, 3, 2}, 2.5},
		{0.25, []float64{1, 2, 3}, 1},
		{0.75, []float64{1, 2, 3}, 3},
		{1, []float64{5, 9, 1}, 9},
		{0.75, []float64{1, 2, 3, 4}, 3.5},
	} {
		if got := report.Quantile(test.p, test.values); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("Quantile(%g, %v) = %g, want %g", test.p, test.values, got, test.want)
		}
	}
}

func TestQuantileLeavesTheOrderAlone(t *testing.T) {
	t.Parallel()

	values := []float64{3, 1, 2}
	report.Summarize(values)

	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("Summarize changed its argument to %v", values)
	}
}

func TestRatios(t *testing.T) {
	t.Parallel()

	if got := report.Ratios([]float64{2, 9}, []float64{1, 3}); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("Ratios of two rounds = %v, want [2 3]", got)
	}

	if got := report.Ratios([]float64{2, 4, 6}, []float64{2}); len(got) != 1 || got[0] != 2 {
		t.Errorf("Ratios of unequal rounds = %v, want the one of the medians, 2", got)
	}

	if got := report.Ratios(nil, []float64{1}); got != nil {
		t.Errorf("Ratios of nothing = %v, want nil", got)
	}
}
