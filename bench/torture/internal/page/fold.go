package page

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
)

var number = regexp.MustCompile(`\d+(?:\.\d+)?`)

// frame is a text without its numbers: texts of one frame say the same of other numbers.
func frame(text string) string { return number.ReplaceAllString(text, "#") }

// fold makes one text of those of one frame. Where their numbers differ it has the smallest and the largest.
func fold(texts ...string) string {
	if len(texts) == 0 {
		return ""
	}

	var columns [][]string

	for _, text := range texts {
		for i, n := range number.FindAllString(text, -1) {
			if i == len(columns) {
				columns = append(columns, nil)
			}

			columns[i] = append(columns[i], n)
		}
	}

	i := -1

	return number.ReplaceAllStringFunc(texts[0], func(string) string {
		i++
		least, most := slices.MinFunc(columns[i], byValue), slices.MaxFunc(columns[i], byValue)

		if byValue(least, most) == 0 {
			return least
		}

		return least + "–" + most
	})
}

// byValue compares what the pattern found, which are numbers.
func byValue(a, b string) int {
	x, _ := strconv.ParseFloat(a, 64)
	y, _ := strconv.ParseFloat(b, 64)

	return cmp.Compare(x, y)
}

// likes are what has one key, in the order of the first of each.
func likes[T any](all []T, key func(T) string) [][]T {
	var (
		keys []string
		like [][]T
	)

	for _, one := range all {
		k := key(one)

		i := slices.Index(keys, k)
		if i < 0 {
			i = len(keys)
			keys, like = append(keys, k), append(like, nil)
		}

		like[i] = append(like[i], one)
	}

	return like
}
