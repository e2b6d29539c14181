package page

import (
	"bytes"
	"image/color"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// The measures of the picture, in points: 4/3 pixels each.
const (
	margin     = 9
	textSize   = 9
	lineHeight = 11
	rowHeight  = 26
	headHeight = 20
	cellWidth  = 64
	labelWidth = 145
	gap        = 6
	between    = 1.5 // cells

	// wider is how much room a text gets of what it takes in the font that it is measured with: where neither that nor its
	// likes are installed, another one takes more.
	wider = 1.15
)

// The colours are those of Okabe and Ito, which people tell apart who see fewer colours, with some white so that dark text can be
// read on them. Whether the page around the picture is light or dark is not known to it: it brings its own background along.
var (
	paper  = color.RGBA{0xff, 0xff, 0xff, 0xff}
	border = color.RGBA{0xd0, 0xd7, 0xde, 0xff}
	ink    = color.RGBA{0x1f, 0x23, 0x28, 0xff}
	faint  = color.RGBA{0x57, 0x60, 0x6a, 0xff}
	grey   = color.RGBA{0xea, 0xec, 0xee, 0xff}
	fills  = map[judge.Kind]color.RGBA{
		judge.Good:   {0x7f, 0xce, 0xb9, 0xff}, // bluish green
		judge.Stuck:  {0xf4, 0xeb, 0x71, 0xff}, // yellow
		judge.Broken: {0xe0, 0x86, 0x40, 0xff}, // vermillion
		judge.None:   grey,
		judge.Failed: grey,
	}
)

// legend says what the colours are.
var legend = []struct {
	kind judge.Kind
	text string
}{
	{judge.Good, "nothing was broken; the time that nobody had it"},
	{judge.Stuck, "nothing was broken, but for long nobody had it"},
	{judge.Broken, "broken"},
	{judge.None, "no such thing, or not run"},
}

// pen draws from the top. It stands at the upper edge of the next line.
type pen struct {
	draw.Canvas

	y vg.Length
}

// rectangle is filled.
func (p *pen) rectangle(fill color.Color, left, bottom, right, top vg.Length) {
	p.FillPolygon(fill, []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}})
}

// text stands in the middle of a height that begins at the pen.
func (p *pen) text(s draw.TextStyle, fill color.Color, x, height vg.Length, text string) {
	s.Color = fill
	p.FillText(s, vg.Point{X: x, Y: p.y - (height+s.Font.Size*0.7)/2}, text)
}

// lines are a text in the middle of a height that begins at the pen, broken where it is too wide.
func (p *pen) lines(s draw.TextStyle, place func(vg.Length) vg.Length, width, height vg.Length, text string) {
	lines := wrap(text, s, width/wider)
	top := p.y

	p.y -= (height - vg.Length(len(lines))*lineHeight) / 2

	for _, line := range lines {
		p.text(s, ink, place(s.Width(line)), lineHeight, line)
		p.y -= lineHeight
	}

	p.y = top
}

// beginning has a text begin there, however wide it is.
func beginning(left vg.Length) func(vg.Length) vg.Length {
	return func(vg.Length) vg.Length { return left }
}

// centred has a text in the middle of the cell that begins there.
func centred(left vg.Length) func(vg.Length) vg.Length {
	return func(width vg.Length) vg.Length { return left + (cellWidth-between-width)/2 }
}

// picture is the table as an SVG.
func (r Record) picture() ([]byte, error) {
	var (
		cells  = r.merged()
		faults = judge.Faults()
		groups = r.groups()
		left   = vg.Length(margin + labelWidth + gap)
		width  = left + vg.Length(len(faults))*cellWidth + margin
		height = vg.Length(2*margin + lineHeight + 2*gap + headHeight + len(groups)*headHeight + len(r.Locks)*rowHeight)
		canvas = vgsvg.New(width, height)
		p      = &pen{draw.New(canvas), height - margin}
	)

	p.rectangle(paper, 0, 0, width, height)
	p.SetLineStyle(draw.LineStyle{Color: border, Width: 1})
	p.Stroke(vg.Rectangle{Max: vg.Point{X: width, Y: height}}.Path())

	p.legend()

	for i, fault := range faults {
		p.lines(style(true), centred(left+vg.Length(i)*cellWidth), wider*cellWidth, headHeight, string(fault))
	}

	p.y -= headHeight

	for _, g := range groups {
		p.text(style(true), faint, margin, headHeight, serverTitle(g.server))
		p.y -= headHeight

		for _, row := range g.rows {
			p.lines(style(row.Ours), beginning(margin), labelWidth, rowHeight-between, row.Name)

			for i, fault := range faults {
				c := cells[place{row.ID(), fault}]
				x := left + vg.Length(i)*cellWidth

				fill, known := fills[c.Kind]
				if !known {
					fill = grey
				}

				p.rectangle(fill, x, p.y-rowHeight+between, x+cellWidth-between, p.y)
				p.lines(style(false), centred(x), cellWidth-between, rowHeight-between, parted(c))
			}

			p.y -= rowHeight
		}
	}

	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}

	return []byte(shorter.Replace(out.String())), nil
}

// shorter says once for all texts what they have in common. The font that they were measured with has the widths of the other two.
var shorter = strings.NewReplacer(
	"<svg ", "<svg style=\"font-family:'Liberation Sans',Arial,Helvetica,sans-serif\" ",
	"font-family:Liberation Sans;font-variant:normal;", "",
	"font-weight:normal;", "",
	"font-style:normal;", "",
)

// legend is a line that says what the colours are.
func (p *pen) legend() {
	x := vg.Length(margin)

	for _, one := range legend {
		p.rectangle(fills[one.kind], x, p.y-lineHeight, x+lineHeight, p.y)
		p.text(style(false), ink, x+lineHeight+gap, lineHeight, one.text)
		x += lineHeight + wider*style(false).Width(one.text) + 3*gap
	}

	p.y -= lineHeight + 2*gap
}

func style(bold bool) draw.TextStyle {
	s := draw.TextStyle{
		Font:    font.Font{Typeface: "Liberation", Variant: "Sans", Size: textSize},
		Handler: plot.DefaultTextHandler,
	}
	if bold {
		s.Font.Weight = 3 // golang.org/x/image/font.WeightBold
	}

	return s
}

// parted is word with a line for each figure of a broken cell.
func parted(c judge.Cell) string {
	if c.Kind != judge.Broken {
		return word(c)
	}

	parts := strings.Split(word(c), ", ")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(part, " ", "\u00a0")
	}

	return strings.Join(parts, " ")
}

var unit = regexp.MustCompile(`(\d) (m?s|jumped)\b`)

// wrap breaks a text between words, but not between a figure and its unit.
func wrap(text string, s draw.TextStyle, width vg.Length) []string {
	lines := []string{""}

	for word := range strings.SplitSeq(unit.ReplaceAllString(text, "$1\u00a0$2"), " ") {
		longer := strings.TrimSpace(lines[len(lines)-1] + " " + word)
		if s.Width(longer) > width && lines[len(lines)-1] != "" {
			lines = append(lines, word)
		} else {
			lines[len(lines)-1] = longer
		}
	}

	return lines
}
