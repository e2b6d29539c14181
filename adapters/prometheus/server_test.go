package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	locks "github.com/sqllock/sqllock/adapters/prometheus"
	"github.com/sqllock/sqllock/internal/filelock"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

// selector matches a metric of ours with its matchers in a query.
var selector = regexp.MustCompile(`sqllock_\w+(\{[^}]*\})?`)

// query is one of a dashboard's panels or an alert.
type query struct{ of, expr string }

func TestServer(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	metrics := locks.New()
	locker := filelock.NewLocker(t, file, sqllock.WithObserver(metrics.Observe), sqllock.WithLease(2*time.Second), sqllock.WithTuning(sqllock.Tuning{NoHandOff: true}))
	other := filelock.NewLocker(t, file)

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics, locks.NewDatabase(other, 0))

	exporter := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(exporter.Close)

	rules, err := filepath.Abs("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}

	api := server(t, fmt.Sprintf(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs:
  - job_name: locks
    static_configs: [{targets: [%q]}]
`, rules, strings.TrimPrefix(exporter.URL, "http://")))

	filelock.Eventually(t, func() error { return oneUp(t.Context(), api) })
	filelock.Eventually(t, func() error { return answers(t.Context(), api, `sqllock_losses_total{reason="forced"} == 0`) })

	// What the queries are to see.
	held := filelock.Acquire(t, locker, "held")
	filelock.Release(t, filelock.Acquire(t, locker, "released"))

	if err := sqllocktest.ForceRelease(t.Context(), other, "held", "for a test"); err != nil {
		t.Fatal(err)
	}

	<-held.Done()

	held = filelock.Acquire(t, locker, "held")
	defer filelock.Release(t, held)

	queries := append(panels(t), query{"this test", "up"})

	for _, q := range queries {
		filelock.Eventually(t, func() error {
			if err := answers(t.Context(), api, q.expr); err != nil {
				return fmt.Errorf("%s: %s: %w", q.of, q.expr, err)
			}

			return nil
		})
	}

	alerts := loaded(t, api)
	if len(alerts) != 6 {
		t.Errorf("Prometheus has loaded %d alerts, want 6", len(alerts))
	}

	seen := map[string]bool{}

	for _, q := range append(queries, alerts...) {
		for _, s := range selector.FindAllString(q.expr, -1) {
			seen[s] = true

			var series []json.RawMessage
			if err := ask(t.Context(), api, "series", url.Values{"match[]": {s}}, &series); err != nil || len(series) == 0 {
				t.Errorf("%s: %s: %s matches nothing (%v)", q.of, q.expr, s, err)
			}
		}
	}

	if len(seen) < 10 {
		t.Errorf("only %d selectors were found in the queries", len(seen))
	}

	filelock.Eventually(t, func() error { return fire(t.Context(), api, "SqllockLockLost", "SqllockCloseCall") })
}

func TestPromtool(t *testing.T) {
	t.Parallel()

	tool := program(t, "promtool")

	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		if _, err := run(t.Context(), ".", tool, args...); err != nil {
			t.Error(err)
		}
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(locks.New(), locks.NewDatabase(filelock.NewLocker(t, filelock.NewFile(t)), 0))

	exporter := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(exporter.Close)

	text, err := get(t.Context(), exporter.URL)
	if err != nil {
		t.Fatal(err)
	}

	check := exec.CommandContext(t.Context(), tool, "check", "metrics")
	check.Stdin = strings.NewReader(string(text))

	if output, err := check.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("promtool check metrics: %v: %s", err, output)
	}
}

// panels returns the queries of the dashboard, as Grafana asks them with all jobs and instances.
func panels(t *testing.T) []query {
	t.Helper()

	text, err := os.ReadFile(filepath.Join("dashboards", "sqllock.json"))
	if err != nil {
		t.Fatal(err)
	}

	var dashboard struct {
		Templating struct {
			List []struct{ Name, Type, Query any }
		}
		Panels []struct {
			Title, Description, Type string
			Targets                  []struct {
				Expr       string
				Datasource struct{ Type, UID string }
			}
		}
	}

	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}

	first := dashboard.Templating.List[0]
	if first.Name != "datasource" || first.Type != "datasource" || first.Query != "prometheus" {
		t.Errorf("the first variable is %v, want the data source", first)
	}

	all := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")

	var queries []query

	for _, panel := range dashboard.Panels {
		if panel.Type == "row" {
			continue
		}

		if panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("panel %q has no description or no query", panel.Title)
		}

		for _, target := range panel.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q asks %q and not the variable's data source", panel.Title, target.Datasource.UID)
			}

			expr := all.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q has a variable that the dashboard has not: %s", panel.Title, expr)
			}

			queries = append(queries, query{panel.Title, expr})
		}
	}

	return queries
}

// oneUp says whether Prometheus has scraped its one target.
func oneUp(ctx context.Context, api string) error {
	var targets struct {
		ActiveTargets []struct{ Health, LastError string }
	}

	if err := ask(ctx, api, "targets", nil, &targets); err != nil {
		return err
	}

	if len(targets.ActiveTargets) != 1 || targets.ActiveTargets[0].Health != "up" {
		return fmt.Errorf("targets = %+v, want one that is up", targets.ActiveTargets)
	}

	return nil
}

// answers says whether a query has a result.
func answers(ctx context.Context, api, expr string) error {
	var data struct{ Result []json.RawMessage }

	err := ask(ctx, api, "query", url.Values{"query": {expr}}, &data)
	if err == nil && len(data.Result) == 0 {
		err = errNotYet
	}

	return err
}

// loaded returns the alerts that Prometheus has loaded. It has evaluated each without an error.
func loaded(t *testing.T, api string) []query {
	t.Helper()

	var alerts []query

	filelock.Eventually(t, func() error {
		var data struct {
			Groups []struct {
				Rules []struct {
					Name, Query, Health, LastError string
					Annotations                    map[string]string
				}
			}
		}

		if err := ask(t.Context(), api, "rules", nil, &data); err != nil {
			return err
		}

		alerts = nil

		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				if rule.Health != "ok" || rule.LastError != "" {
					return fmt.Errorf("alert %s is %s: %s", rule.Name, rule.Health, rule.LastError)
				}

				if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
					t.Errorf("alert %s has no summary or no description", rule.Name)
				}

				alerts = append(alerts, query{rule.Name, rule.Query})
			}
		}

		return nil
	})

	for _, alert := range alerts {
		if err := ask(t.Context(), api, "query", url.Values{"query": {alert.expr}}, new(any)); err != nil {
			t.Errorf("%s: %s: %v", alert.of, alert.expr, err)
		}
	}

	return alerts
}

// fire says whether exactly these alerts are firing, with annotations whose templates work.
func fire(ctx context.Context, api string, want ...string) error {
	var data struct {
		Alerts []struct {
			State               string
			Labels, Annotations map[string]string
		}
	}

	if err := ask(ctx, api, "alerts", nil, &data); err != nil {
		return err
	}

	var firing []string

	for _, alert := range data.Alerts {
		if alert.State != "firing" {
			continue
		}

		firing = append(firing, alert.Labels["alertname"])

		if s := alert.Annotations["summary"]; strings.Contains(s, "<error") || strings.Contains(s, "{{") {
			return fmt.Errorf("the summary of %s is %q", alert.Labels["alertname"], s)
		}
	}

	slices.Sort(firing)
	slices.Sort(want)

	if !slices.Equal(firing, want) {
		return fmt.Errorf("firing are %q, want %q", firing, want)
	}

	return nil
}

// ask asks Prometheus' HTTP API.
func ask(ctx context.Context, api, method string, values url.Values, data any) error {
	text, err := get(ctx, api+"/api/v1/"+method+"?"+values.Encode())
	if err != nil {
		return err
	}

	return json.Unmarshal(text, &struct{ Data any }{data})
}

// get returns what a URL has. Another status than 200 is an error, with the text.
func get(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}

	return text, err
}
