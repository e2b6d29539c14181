package docs_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMetricNames checks that the pages name the metrics that the code has, and all of them.
func TestMetricNames(t *testing.T) {
	t.Parallel()

	prometheus := made(t, `(?:counter|histogram)\("(\w+)"`, "sqllock_", "adapters/prometheus/prometheus.go")
	maps.Copy(prometheus, made(t, `"sqllock_(\w+)"`, "sqllock_", "adapters/prometheus/prometheus.go", "adapters/prometheus/database.go"))
	maps.Copy(prometheus, made(t, `gauge\("(\w+)"`, "sqllock_database_", "adapters/prometheus/database.go"))
	delete(prometheus, "sqllock_database_") // what those begin with

	page := made(t, `"(sqllock_\w+)"`, "", "cmd/sqllock/internal/page/metrics.go")
	telemetry := made(t, `(?:counter|seconds|Counter|Gauge)\("(sqllock\.[\w.]+)"`, "",
		"adapters/opentelemetry/metrics.go", "adapters/opentelemetry/database.go")

	for file, c := range map[string]struct {
		begin, end string
		name       string // in what is between them
		prefix     string
		code       map[string]bool
	}{
		"docs/operations.md":                          {"`/metrics` has", "\n## ", "`((?:sqllock_|…_)\\w+)`", "sqllock_database", page},
		"adapters/prometheus/README.md":               {"| metric", "\n\n", "`([a-z_]+)(?:\\{\\w+\\})?`", "sqllock_", prometheus},
		"adapters/opentelemetry/README.md":            {"is `sqllock.lock`:\n\n", "\n\n", "`((?:sqllock)?\\.[\\w.]+)`", "sqllock.database", telemetry},
		"adapters/prometheus/alerts.yaml":             {"", "", `\b(sqllock_\w+)[\[{) ]`, "", prometheus},
		"adapters/prometheus/dashboards/sqllock.json": {"", "", `\b(sqllock_\w+?)(?:_bucket)?\{`, "", prometheus},
	} {
		text := read(t, filepath.Join("..", file))
		_, text, _ = strings.Cut(text, c.begin)

		if c.end != "" {
			text, _, _ = strings.Cut(text, c.end)
		}

		named := map[string]bool{}

		for _, found := range regexp.MustCompile(c.name).FindAllStringSubmatch(text, -1) {
			name := strings.TrimPrefix(found[1], "…")

			switch {
			case strings.HasPrefix(name, "sqllock"):
			case strings.HasPrefix(name, "_") && c.prefix == "sqllock_":
				name = c.prefix + "database" + name // after database_up
			default:
				name = c.prefix + name
			}

			named[name] = true
		}

		for name := range named {
			if !c.code[name] && name != "sqllock.result" && name != "sqllock.reason" {
				t.Errorf("%s names %s, which is no metric", file, name)
			}
		}

		for _, name := range slices.Sorted(maps.Keys(c.code)) {
			if strings.HasSuffix(file, ".md") && !named[name] {
				t.Errorf("%s does not name %s", file, name)
			}
		}
	}
}

// made returns the names in Go files that a pattern finds.
func made(t *testing.T, pattern, prefix string, files ...string) map[string]bool {
	t.Helper()

	names := map[string]bool{}

	for _, file := range files {
		for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, filepath.Join("..", file)), -1) {
			names[prefix+found[1]] = true
		}
	}

	if len(names) == 0 {
		t.Errorf("%v have no metrics", files)
	}

	return names
}
