package report

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// pen draws a plot from the top. It stands at the upper edge of the next line.
type pen struct {
	draw.Canvas

	y       vg.Length
	columns columns
}

func (p *pen) rectangle(fill color.Color, left, bottom, right, top vg.Length) {
	p.FillPolygon(fill, []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}})
}

// text writes into the line.
func (p *pen) text(s draw.TextStyle, fill color.Color, x vg.Length, text string) {
	s.Color = fill
	p.FillText(s, vg.Point{X: x, Y: p.y - (lineHeight+s.Font.Size*0.7)/2}, text)
}

// legend is a line that says what the colours are.
func (p *pen) legend(bars []Bar) {
	x := vg.Length(plotMargin)
	middle := p.y - lineHeight/2

	for _, family := range []Family{Ours, Others, Floors} {
		if !slices.ContainsFunc(bars, func(b Bar) bool { return b.Family == family }) {
			continue
		}

		text := map[Family]string{Ours: "sqllock", Others: "other locks", Floors: "floor: no lock"}[family]
		p.rectangle(fills[family], x, middle-barHeight/2, x+barHeight, middle+barHeight/2)
		p.text(style(textSize, family == Ours), ink, x+barHeight+gap, text)
		x += barHeight + style(textSize, family == Ours).Width(text) + 3*gap
	}

	if slices.ContainsFunc(bars, spread) {
		p.whisker(x, x+2*barHeight)
		p.text(style(textSize, false), ink, x+2*barHeight+gap, "quartiles")
	}

	p.y -= lineHeight
}

func spread(b Bar) bool { return b.Lower != b.Upper }

// bar is a line with the label, the bar, and the value at its end.
func (p *pen) bar(b Bar, value string) {
	var (
		middle = p.y - lineHeight/2
		end    = p.place(b.Median)
		right  = end
		text   = style(textSize, b.Family == Ours)
	)

	p.text(text, ink, plotMargin, b.Label)
	// The least bar can be seen, too.
	p.rectangle(fills[b.Family], p.columns.left, middle-barHeight/2, max(end, p.columns.left+1), middle+barHeight/2)

	switch {
	case p.columns.cut(b):
		p.rectangle(paper, end-3*gap, middle-barHeight/2, end-2*gap, middle+barHeight/2)
	case spread(b):
		right = max(end, p.place(b.Upper))
		p.whisker(p.place(b.Lower), right)
	}

	p.text(text, ink, right+gap, value)
	p.y -= lineHeight
}

// place is where a value is, from the left.
func (p *pen) place(value float64) vg.Length {
	return p.columns.left + vg.Length(min(max(value, 0), p.columns.most))*p.columns.unit
}

// whisker is a line in the middle of a bar, from one quartile to the other.
func (p *pen) whisker(left, right vg.Length) {
	// On a dark bar it needs a light edge.
	p.StrokeLine2(draw.LineStyle{Color: paper, Width: 3}, left, p.y-lineHeight/2, right, p.y-lineHeight/2)
	p.StrokeLine2(draw.LineStyle{Color: ink, Width: 1}, left, p.y-lineHeight/2, right, p.y-lineHeight/2)
}
