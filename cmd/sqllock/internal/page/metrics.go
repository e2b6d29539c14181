package page

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// metrics writes Prometheus' text format:
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-format-details
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	var b strings.Builder

	seen := s.look(r.Context())

	up := 1
	if seen.err != nil {
		up = 0
	}

	// Named and described as those of adapters/prometheus, so that one dashboard does for both.
	gauge(&b, "sqllock_database_up", up,
		"1 if the database said in time who holds and waits for locks, else 0, and the other metrics of it are missing.")

	// What was so some time ago is no measurement.
	if seen.err == nil {
		all := viewOf(seen.value, func(string) bool { return true })

		gauge(&b, "sqllock_database_holders", all.Holders, "Grants of locks in the database, by whatever process.")
		gauge(&b, "sqllock_database_waiters", all.Waiters, "Processes that wait for a lock, once for each name.")
		gauge(&b, "sqllock_database_oldest_wait_seconds", all.Oldest.Seconds(), "How long the one waits who has waited longest.")
		gauge(&b, "sqllock_database_recovery_seconds", seen.value.Left.Seconds(), "How long nothing is granted yet after a fail-over; 0 if locks are granted.")

		if s.MetricNames {
			writeNames(&b, seen.value)
		}
	}

	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(b.String()))
}

// writeNames writes the same for each name that is held or waited for.
func writeNames(b *strings.Builder, seen Locks) {
	holders, waiters, oldest := map[string]float64{}, map[string]float64{}, map[string]float64{}

	var names []string

	for _, lock := range seen.Locks {
		names = append(names, lock.Name)

		if lock.Held() {
			holders[lock.Name]++
		}
	}

	for _, w := range seen.Waiters {
		names = append(names, w.Name)
		waiters[w.Name]++
		oldest[w.Name] = max(oldest[w.Name], w.Waited.Seconds())
	}

	slices.Sort(names)
	names = slices.Compact(names)

	for _, metric := range []struct {
		name, help string
		values     map[string]float64
	}{
		{"sqllock_database_name_holders", "Grants of the name that are held.", holders},
		{"sqllock_database_name_waiters", "Those who wait for the name.", waiters},
		{"sqllock_database_name_oldest_wait_seconds", "How long the one who waits longest for the name has waited.", oldest},
	} {
		describe(b, metric.name, metric.help)

		for _, name := range names {
			fmt.Fprintf(b, "%s{name=\"%s\"} %g\n", metric.name, labelValue(name), metric.values[name])
		}
	}
}

// gauge writes a metric without labels.
func gauge(b *strings.Builder, name string, value any, help string) {
	describe(b, name, help)
	fmt.Fprintf(b, "%s %v\n", name, value)
}

func describe(b *strings.Builder, name, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
}

// labelValue is a text between the quotes of a label.
func labelValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\ufffd"))
}
