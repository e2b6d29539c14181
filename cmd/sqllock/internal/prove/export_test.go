package prove

// PromiseOf is promiseOf.
func PromiseOf(name string) string { return promiseOf(name) }

// Patterns are what promises say of their cases.
func Patterns() (patterns []string) {
	for _, p := range promises() {
		patterns = append(patterns, p.cases...)
	}

	return patterns
}
