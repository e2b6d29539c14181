package report

import (
	"bytes"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot draws a column: a line for each contestant, its median and quartiles on
// a logarithmic scale. Contestants without a figure are left out; the table
// names them. Nothing is drawn of less than two.
func Plot(file, title string, column Column, results Results) (drawn bool, err error) {
	var (
		names  []string
		points quartiles
	)

	// The first of the table is at the top.
	for i := len(results) - 1; i >= 0; i-- {
		row := results[i]

		values := column.Values(results, row)
		if len(values) == 0 {
			continue
		}

		s := Summarize(values)
		if column.At != 0 {
			value := Quantile(column.At, values)
			s = Summary{value, value, value}
		}

		if s.Lower <= 0 { // a logarithm has no place for it
			continue
		}

		points = append(points, s)
		names = append(names, row.Server+nameSeparator+row.Name)
	}

	if len(points) < 2 {
		return false, nil
	}

	p := plot.New()
	p.Title.Text = title
	p.BackgroundColor = color.White
	p.X.Label.Text = column.Title
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = ticks{column.Format}
	p.NominalY(names...)

	dots, err := plotter.NewScatter(points)
	if err != nil {
		return false, err
	}

	dots.GlyphStyle = draw.GlyphStyle{Color: color.RGBA{B: 160, A: 255}, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}

	bars, err := plotter.NewXErrorBars(points)
	if err != nil {
		return false, err
	}

	p.Add(plotter.NewGrid(), bars, dots)

	canvas := vgsvg.New(vg.Points(785), vg.Points(float64(90+18*len(points))))
	// A margin: the longest name and what is drawn at the ends reach beyond, and
	// names are longer in other fonts.
	p.Draw(draw.Crop(draw.New(canvas), 26*vg.Millimeter, -3*vg.Millimeter, vg.Millimeter, -vg.Millimeter))

	var drawing bytes.Buffer

	if _, err := canvas.WriteTo(&drawing); err != nil {
		return false, err
	}

	return true, os.WriteFile(file, anchored(drawing.Bytes(), p), 0o644)
}

// quartiles are the points of a plot, from below.
type quartiles []Summary

func (q quartiles) Len() int                { return len(q) }
func (q quartiles) XY(i int) (x, y float64) { return q[i].Median, float64(i) }
func (q quartiles) XError(i int) (low, up float64) {
	return q[i].Median - q[i].Lower, q[i].Upper - q[i].Median
}

// ticks labels powers of ten.
type ticks struct{ format Format }

func (t ticks) Ticks(low, high float64) []plot.Tick {
	marks := plot.LogTicks{Prec: -1}.Ticks(low, high)
	for i, mark := range marks {
		if mark.Label != "" {
			marks[i].Label = t.format(mark.Value)
		}
	}

	return marks
}
