package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

	d.targets()
	d.about(set, load, time.Since(began))

	return errors.Join(d.save(), d.writeBrief())
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

// add writes what a scenario found into its section: verdicts, plots, and the
// table, which is folded away where that is possible.
func (d *document) add(scenario scenarios.Scenario, results report.Results) error {
	var out strings.Builder

	verdicts := make([]report.Verdict, len(scenario.Targets))
	for i, target := range scenario.Targets {
		verdicts[i] = target.Judge(results)
	}

	if len(verdicts) > 0 {
		out.WriteString(report.Verdicts(verdicts) + "\n")
	}

	table := report.Table(scenario.Columns, results)

	if d.document == "" {
		out.WriteString(table)
	} else {
		images, err := draw(folder(d.document), scenario, table)
		if err != nil {
			return err
		}

		fmt.Fprintf(&out, "%s<details><summary>All figures</summary>\n\n%s\n</details>\n", images, table)
	}

	fmt.Fprintf(&out, "\n%s, %s, `%s`\n", time.Now().Format(time.DateOnly), d.revision, d.line)
	d.put(scenario.Name, "## "+scenario.Title, out.String())

	// What a run found before it was interrupted is not lost.
	return d.save()
}

// targets sums up what the sections say of targets, those of other runs, too.
func (d *document) targets() {
	if d.document == "" {
		return // they were printed
	}

	var rows strings.Builder

	for _, scenario := range scenarios.All() {
		if section, found := report.Section(d.text, scenario.Name); found {
			rows.WriteString(report.StoredVerdicts(section))
		}
	}

	d.put("targets", "## Targets", report.Sums(rows.String()))
}

// modules are those whose versions make a difference.
var modules = []string{
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "modernc.org/sqlite",
	"github.com/pressly/goose/v3", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4",
	"github.com/redis/go-redis/v9", "go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk",
}

// about says what was run and where. A run that leaves something out does not
// speak for the whole.
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
