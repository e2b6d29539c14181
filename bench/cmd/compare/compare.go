package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
	"github.com/sqllock/sqllock/bench/internal/servers"
)

// compare measures and writes.
func compare(ctx context.Context, s settings) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}

	began, load := time.Now(), report.Load()

	set := servers.Start(ctx, s.servers, s.programs)
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()

		err = errors.Join(err, set.Close(ending))
	}()

	for _, server := range set.All() {
		fmt.Fprintf(os.Stderr, "%s: %s\n", server.Name, server.Version+server.Missing)
	}

	conductor := &scenarios.Conductor{
		Program: program, Servers: set, Duration: s.duration, Rounds: s.rounds, Pool: s.pool, Log: os.Stderr,
	}
	d := &document{settings: s, revision: revision(ctx)}

	if err := d.open(); err != nil {
		return err
	}

	for _, scenario := range s.scenarios {
		results, err := conductor.Run(ctx, scenario, s.contestants)
		if err != nil {
			return err
		}

		if err := d.add(scenario, results); err != nil {
			return err
		}
	}

	d.about(set, load, time.Since(began))

	return d.save()
}

// revision is the commit that was measured.
func revision(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}

	return strings.TrimSpace(string(text))
}

// document is docs/performance.md, or what is printed instead.
type document struct {
	settings

	revision string
	text     string
	verdicts []report.Verdict
	fault    error
}

func (d *document) open() error {
	if d.document == "" {
		return nil
	}

	text, err := os.ReadFile(d.document)
	d.text = string(text)

	return err
}

// plots is the folder of the plots, beside the document.
func (d *document) plots() string { return strings.TrimSuffix(d.document, filepath.Ext(d.document)) }

// add writes what a scenario found into its section.
func (d *document) add(scenario scenarios.Scenario, results report.Results) error {
	var out strings.Builder

	verdicts := make([]report.Verdict, len(scenario.Targets))
	for i, target := range scenario.Targets {
		verdicts[i] = target.Judge(results)
	}

	d.verdicts = append(d.verdicts, verdicts...)

	if len(verdicts) > 0 {
		out.WriteString(report.Verdicts(verdicts) + "\n")
	}

	out.WriteString(report.Table(scenario.Columns, results))

	if d.document != "" {
		if err := d.draw(&out, scenario, results); err != nil {
			return err
		}
	}

	fmt.Fprintf(&out, "\n%s, %s, `%s`\n", time.Now().Format(time.DateOnly), d.revision, d.line)
	d.put(scenario.Name, "## "+scenario.Title, out.String())

	// What a run found before it was interrupted is not lost.
	return d.save()
}

func (d *document) draw(out *strings.Builder, scenario scenarios.Scenario, results report.Results) error {
	if err := os.MkdirAll(d.plots(), 0o755); err != nil {
		return err
	}

	for i, column := range scenario.Plots {
		name := scenario.Name
		if i > 0 {
			name = fmt.Sprintf("%s-%d", name, i+1)
		}

		file := filepath.Join(d.plots(), name+".svg")

		drawn, err := report.Plot(file, scenario.Title, scenario.Columns[column], results)
		if err != nil {
			return err
		}

		if drawn {
			title := scenario.Title + ": " + scenario.Columns[column].Title
			fmt.Fprintf(out, "\n![%s](%s/%s)\n", title, filepath.Base(d.plots()), filepath.Base(file))
		}
	}

	return nil
}

// modules are those whose versions make a difference.
var modules = []string{
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "modernc.org/sqlite",
	"github.com/pressly/goose/v3", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4",
	"github.com/redis/go-redis/v9", "go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk",
}

// about says what was run and where, and sums the targets up. A run that
// leaves something out does not speak for the whole.
func (d *document) about(set *servers.Set, load string, took time.Duration) {
	if !d.whole {
		return
	}

	var out strings.Builder

	fmt.Fprintf(&out, "- command: `make bench`, which ran `%s`: %d rounds of %s for each contestant, pools of %d connections\n",
		d.line, d.rounds, d.duration, d.pool)
	fmt.Fprintf(&out, "- date and revision: %s, %s; it took %s\n", time.Now().Format(time.DateOnly), d.revision, took.Round(time.Second))
	fmt.Fprintf(&out, "- machine: %s; load before %s, after %s\n", report.Machine(), load, report.Load())

	for _, server := range set.All() {
		if server.Missing != "" {
			fmt.Fprintf(&out, "- %s: not measured: %s\n", server.Name, server.Missing)
		} else {
			fmt.Fprintf(&out, "- %s\n", server.Version)
		}
	}

	fmt.Fprintf(&out, "- modules: %s\n", report.Modules(modules...))

	for _, c := range d.contestants {
		if c.Note != "" {
			fmt.Fprintf(&out, "- %s: %s\n", c.Name, c.Note)
		}
	}

	d.put("run", "## The run", out.String())
	d.put("targets", "## Targets", report.Verdicts(d.verdicts))
}

// put replaces a section, or prints it.
func (d *document) put(section, title, text string) {
	if d.document == "" {
		fmt.Printf("%s\n\n%s\n", title, text)

		return
	}

	replaced, err := report.Replace(d.text, section, text)
	if err != nil {
		d.fault = errors.Join(d.fault, err)

		return
	}

	d.text = replaced
}

func (d *document) save() error {
	if d.document == "" || d.fault != nil {
		return d.fault
	}

	return os.WriteFile(d.document, []byte(d.text), 0o644)
}
