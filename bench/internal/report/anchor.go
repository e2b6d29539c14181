package report

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
)

// nameSeparator is between the server and the name of a contestant in a plot.
const nameSeparator = " · "

var textElement = regexp.MustCompile(`<text x="([-.\d]+)"([^>]*font-size:(\d+)px[^>]*)>([^<]*)</text>`)

// anchored gives the texts of a plot an end, or a middle, that stays where it is
// when a viewer has another font than the one they were laid out with: names end
// before the axis.
func anchored(svg []byte, p *plot.Plot) []byte {
	styles := map[string]text.Style{
		strconv.Itoa(int(p.Title.TextStyle.Font.Size)): p.Title.TextStyle,
		strconv.Itoa(int(p.Y.Tick.Label.Font.Size)):    p.Y.Tick.Label,
	}

	return textElement.ReplaceAllFunc(svg, func(element []byte) []byte {
		parts := textElement.FindSubmatch(element)
		label := html.UnescapeString(string(parts[4]))

		style, known := styles[string(parts[3])]

		x, err := strconv.ParseFloat(string(parts[1]), 64)
		if err != nil || !known {
			return element
		}

		anchor, width := "middle", style.Width(label).Points()/2
		if strings.Contains(label, nameSeparator) {
			anchor, width = "end", style.Width(label).Points()
		}

		return fmt.Appendf(nil, `<text text-anchor="%s" x="%.5g"%s>%s</text>`, anchor, x+width, parts[2], parts[4])
	})
}
