package report_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/bench/internal/report"
)

func plot() report.Plot {
	return report.Plot{
		Title: "Goroutines with names of their own", Unit: "pairs/s", Format: report.Count, More: true,
		Bars: []report.Bar{
			{Server: "postgres", Label: "floor", Family: report.Floors, Summary: report.Summary{Lower: 90, Median: 100, Upper: 110}},
			{Server: "postgres", Label: "ours", Family: report.Ours, Summary: report.Summary{Lower: 400, Median: 400, Upper: 400}},
			{Server: "redis", Label: "theirs", Family: report.Others, Summary: report.Summary{Lower: 200, Median: 200, Upper: 200}},
			{Server: "redis", Label: "nothing", Family: report.Others},
		},
	}
}

func svg(t *testing.T, p report.Plot) string {
	t.Helper()

	drawing, err := p.SVG()
	if err != nil {
		t.Fatal(err)
	}

	return string(drawing)
}

// texts are those of a drawing, from the top.
func texts(drawing string) []string {
	var all []string
	for _, found := range regexp.MustCompile(`(?s)<text [^>]*>([^<]*)</text>`).FindAllStringSubmatch(drawing, -1) {
		all = append(all, found[1])
	}

	return all
}

func TestPlot(t *testing.T) {
	t.Parallel()

	want := []string{
		"Goroutines with names of their own", "pairs/s, more is better", "sqllock", "other locks", "floor: no lock", "quartiles",
		"PostgreSQL", "ours", "400", "floor", "100", "Redis", "theirs", "200", "nothing", "0",
	}
	if got := texts(svg(t, plot())); !slices.Equal(got, want) {
		t.Errorf("the plot says %q, want %q", got, want)
	}

	less := plot()
	less.More = false

	if got := texts(svg(t, less))[6:11]; !slices.Equal(got, []string{"PostgreSQL", "floor", "100", "ours", "400"}) {
		t.Errorf("where less is better the plot says %q, want the floor first", got)
	}
}

func TestPlotIsTheSameEachTime(t *testing.T) {
	t.Parallel()

	if first, second := svg(t, plot()), svg(t, plot()); first != second {
		t.Error("two drawings of the same differ")
	}
}

// TestPlotFamilies finds the fill of each bar by its length: all have one scale.
func TestPlotFamilies(t *testing.T) {
	t.Parallel()

	bars := regexp.MustCompile(`<path d="M([\d.]+),([\d.]+)L([\d.]+),[^"]*" style="fill:(#\w+)" />`).
		FindAllStringSubmatch(svg(t, plot()), -1)
	bars = bars[len(bars)-4:]

	lengths, fills := make([]float64, len(bars)), make([]string, len(bars))

	for i, bar := range bars {
		left, _ := strconv.ParseFloat(bar[1], 64)
		right, _ := strconv.ParseFloat(bar[3], 64)
		lengths[i], fills[i] = right-left, bar[4]
	}

	if want := []string{"#0B57D0", "#B4B9BF", "#D9B382", "#D9B382"}; !slices.Equal(fills, want) {
		t.Errorf("fills %v, want ours, the floor's and the others' %v", fills, want)
	}

	if ratio := lengths[0] / lengths[1]; ratio < 3.99 || ratio > 4.01 {
		t.Errorf("the bars of 400 and 100 are %v long, want a ratio of 4", lengths)
	}

	if ratio := lengths[0] / lengths[2]; ratio < 1.99 || ratio > 2.01 {
		t.Errorf("the bars of two panels, 400 and 200, are %v long, want a ratio of 2", lengths)
	}
}

func TestPlotHasTenBarsAtMost(t *testing.T) {
	t.Parallel()

	p := report.Plot{Title: "Many", Unit: "pair", Format: report.Count}
	for i := range 12 {
		family := report.Others
		if i > 9 {
			family = report.Ours // the slowest
		}

		value := float64(1 + i)
		p.Bars = append(p.Bars, report.Bar{
			Server: "postgres", Label: fmt.Sprintf("lock %d", i), Family: family, Summary: report.Summary{Lower: value, Median: value, Upper: value},
		})
	}

	var labels []string
	for _, text := range texts(svg(t, p)) {
		if strings.HasPrefix(text, "lock ") {
			labels = append(labels, text)
		}
	}

	want := []string{"lock 0", "lock 1", "lock 2", "lock 3", "lock 4", "lock 5", "lock 6", "lock 7", "lock 10", "lock 11"}
	if !slices.Equal(labels, want) {
		t.Errorf("the plot has %q, want %q: ours, and the best of the others", labels, want)
	}
}

// TestPlotCanBeReadOnAPhone looks at what decides that: the width of the
// drawing, and the least size of its texts.
func TestPlotCanBeReadOnAPhone(t *testing.T) {
	t.Parallel()

	drawing := svg(t, plot())

	if !strings.Contains(drawing, `viewBox="0 0 360 `) {
		t.Errorf("the drawing is not 360 wide: %.200s", drawing)
	}

	for _, size := range regexp.MustCompile(`font-size:([\d.]+)px`).FindAllStringSubmatch(drawing, -1) {
		if points, err := strconv.ParseFloat(size[1], 64); err != nil || points < 11 {
			t.Errorf("a text has size %q, want 11 at least", size[1])
		}
	}

	if _, background, found := strings.Cut(drawing, `style="fill:`); !found || !strings.HasPrefix(background, "#FFFFFF") {
		t.Error("the drawing begins without a background of its own: dark pages would shine through")
	}

	if !strings.Contains(drawing, "sans-serif;") {
		t.Error("the drawing names no font that every viewer has")
	}
}

func TestPlotCutsWhatIsMuchLonger(t *testing.T) {
	t.Parallel()

	const note = "A bar with a gap is cut: it goes on."

	p := plot()
	if drawing := svg(t, p); strings.Contains(drawing, note) {
		t.Errorf("a bar is cut in a plot of %v", p.Bars)
	}

	p.Bars[2].Lower, p.Bars[2].Median, p.Bars[2].Upper = 2e6, 2e6, 2e6

	drawing := svg(t, p)
	if got := texts(drawing); got[len(got)-1] != note || !slices.Contains(got, "2,000,000") {
		t.Errorf("the plot says %q, want the value of the cut bar, and that it is cut", got)
	}
}
