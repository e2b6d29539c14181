package report

import (
	"bytes"
	"cmp"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Family is what bars of one colour have in common.
type Family int

// The families.
const (
	Others Family = iota // other locks
	Ours                 // of this library
	Floors               // no lock
)

// Bar is a contestant in a plot.
type Bar struct {
	Server, Label string
	Family        Family
	Summary
}

// Plot is a column of a table as bars, with a panel for each server.
type Plot struct {
	Title, Unit string
	Format      Format
	// More is true if more is better.
	More bool
	Bars []Bar
}

// cutAt is how many times longer than the longest bar of this library a bar may
// be. One that is longer is cut: it would leave no room for any difference.
const cutAt = 5

// mostBars are as many as a reader takes in. The tables have all.
const mostBars = 10

// The measures of a plot, in points. A phone shows the width on as many
// pixels, and text of less than eleven of them is hard to read there.
const (
	plotWidth  = 360
	plotMargin = 10
	textSize   = 11
	titleSize  = 13
	lineHeight = 17
	barHeight  = 11
	gap        = 6

	// wider is how much room a text gets of what it takes in the font that it is measured with: where neither that nor its
	// likes are installed, another one takes more.
	wider = 1.12
)

// A plot brings its own background along: whether the page around it is light
// or dark is not known to a picture.
var (
	paper  = color.RGBA{0xff, 0xff, 0xff, 0xff}
	border = color.RGBA{0xd0, 0xd7, 0xde, 0xff}
	ink    = color.RGBA{0x1f, 0x23, 0x28, 0xff}
	faint  = color.RGBA{0x57, 0x60, 0x6a, 0xff}
	fills  = map[Family]color.RGBA{
		Ours:   {0x0b, 0x57, 0xd0, 0xff},
		Others: {0xd9, 0xb3, 0x82, 0xff},
		Floors: {0xb4, 0xb9, 0xbf, 0xff},
	}
)

// panel is the bars of a server, the best first. If there are too many, the
// worst that are not of this library are left out.
func (p Plot) panel(server string) []Bar {
	bars := slices.DeleteFunc(slices.Clone(p.Bars), func(b Bar) bool { return b.Server != server })

	slices.SortStableFunc(bars, func(a, b Bar) int {
		if p.More {
			a, b = b, a
		}

		return cmp.Compare(a.Median, b.Median)
	})

	for len(bars) > mostBars {
		worst := len(bars) - 1
		for worst > 0 && bars[worst].Family == Ours {
			worst--
		}

		bars = slices.Delete(bars, worst, worst+1)
	}

	return bars
}

// SVG draws it. All panels have one scale, which begins at zero.
func (p Plot) SVG() ([]byte, error) {
	var panels [][]Bar

	for i, bar := range p.Bars {
		if !slices.ContainsFunc(p.Bars[:i], func(b Bar) bool { return b.Server == bar.Server }) {
			panels = append(panels, p.panel(bar.Server))
		}
	}

	title := wrap(p.Title, style(titleSize, true), (plotWidth-2*plotMargin)/wider)
	lines := 0

	for _, bars := range panels {
		lines += len(bars) + 1
	}

	columns := p.columns(panels)
	anyCut := slices.ContainsFunc(slices.Concat(panels...), columns.cut)

	if anyCut {
		lines++
	}

	height := vg.Length(2*plotMargin + lineHeight*(len(title)+2+lines) + gap*(len(panels)+1))
	canvas := vgsvg.New(plotWidth, height)
	pen := &pen{Canvas: draw.New(canvas), y: height - plotMargin, columns: columns}

	pen.rectangle(paper, 0, 0, plotWidth, height)
	pen.SetLineStyle(draw.LineStyle{Color: border, Width: 1})
	pen.Stroke(vg.Rectangle{Max: vg.Point{X: plotWidth, Y: height}}.Path())

	for _, line := range title {
		pen.text(style(titleSize, true), ink, plotMargin, line)
		pen.y -= lineHeight
	}

	direction := "less is better"
	if p.More {
		direction = "more is better"
	}

	pen.text(style(textSize, false), faint, plotMargin, p.Unit+", "+direction)
	pen.y -= lineHeight
	pen.legend(p.Bars)

	for _, bars := range panels {
		pen.y -= gap
		pen.text(style(textSize, true), faint, plotMargin, serverTitle(bars[0].Server))
		pen.y -= lineHeight

		for _, bar := range bars {
			pen.bar(bar, p.Format(bar.Median))
		}
	}

	if anyCut {
		pen.y -= gap / 2
		pen.text(style(textSize, false), faint, plotMargin, "A bar with a gap is cut: it goes on.")
	}

	var out bytes.Buffer

	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}

	// The font that texts were measured with has the widths of the other two.
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")), nil
}

// columns are where bars begin, how long they are for a value of 1, and the
// largest value that they have room for.
type columns struct {
	left, unit vg.Length
	most       float64
}

func (c columns) cut(b Bar) bool { return b.Median > c.most }

func (p Plot) columns(panels [][]Bar) columns {
	var (
		label, value vg.Length
		most, ours   float64
	)

	for _, bar := range slices.Concat(panels...) {
		label = max(label, wider*style(textSize, bar.Family == Ours).Width(bar.Label))
		value = max(value, wider*style(textSize, bar.Family == Ours).Width(p.Format(bar.Median)))
		most = max(most, bar.Upper)

		if bar.Family == Ours {
			ours = max(ours, bar.Upper)
		}
	}

	if ours > 0 {
		most = min(most, cutAt*ours)
	}

	left := plotMargin + label + gap
	if most == 0 {
		return columns{left, 0, 0}
	}

	return columns{left, (plotWidth - plotMargin - value - gap - left) / vg.Length(most), most}
}

func serverTitle(name string) string {
	titles := map[string]string{
		"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlite": "SQLite", "redis": "Redis", "zookeeper": "ZooKeeper",
	}

	return cmp.Or(titles[name], name)
}

func style(size vg.Length, bold bool) draw.TextStyle {
	s := draw.TextStyle{
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: plot.DefaultTextHandler,
	}
	if bold {
		s.Font.Weight = 3 // golang.org/x/image/font.WeightBold
	}

	return s
}

// wrap breaks a text between words.
func wrap(text string, s draw.TextStyle, width vg.Length) []string {
	lines := []string{""}

	for word := range strings.FieldsSeq(text) {
		longer := strings.TrimSpace(lines[len(lines)-1] + " " + word)
		if s.Width(longer) > width && lines[len(lines)-1] != "" {
			lines = append(lines, word)
		} else {
			lines[len(lines)-1] = longer
		}
	}

	return lines
}
