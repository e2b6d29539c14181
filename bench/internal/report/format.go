package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Format writes a value as people read it.
type Format func(float64) string

// Nanoseconds writes a time in the unit that fits.
func Nanoseconds(ns float64) string {
	switch size := math.Abs(ns); {
	case size < 1e3:
		return digits(ns) + " ns"
	case size < 1e6:
		return digits(ns/1e3) + " µs"
	case size < 1e9:
		return digits(ns/1e6) + " ms"
	default:
		return digits(ns/1e9) + " s"
	}
}

// Count writes a number with its thousands apart.
func Count(n float64) string {
	switch size := math.Abs(n); {
	case size < 1000 && n == math.Trunc(n):
		return strconv.Itoa(int(n))
	case size < 999.5:
		return digits(n)
	}

	text := strconv.FormatInt(int64(math.Round(math.Abs(n))), 10)

	var grouped strings.Builder

	if n < 0 {
		grouped.WriteByte('-')
	}

	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			grouped.WriteByte(',')
		}

		grouped.WriteRune(digit)
	}

	return grouped.String()
}

// Bytes writes a size.
func Bytes(n float64) string {
	switch size := math.Abs(n); {
	case size < 1<<10:
		return digits(n) + " B"
	case size < 1<<20:
		return digits(n/(1<<10)) + " KiB"
	default:
		return digits(n/(1<<20)) + " MiB"
	}
}

// Times writes a ratio.
func Times(ratio float64) string { return digits(ratio) + "×" }

// digits writes three figures that count.
func digits(n float64) string {
	switch size := math.Abs(n); {
	case size == 0:
		return "0"
	case size < 0.001:
		return fmt.Sprintf("%.1g", n)
	case size < 1:
		return strconv.FormatFloat(n, 'f', 3-int(math.Ceil(math.Log10(size)+1e-12)), 64)
	case size < 10:
		return strconv.FormatFloat(n, 'f', 2, 64)
	case size < 100:
		return strconv.FormatFloat(n, 'f', 1, 64)
	default:
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
}
