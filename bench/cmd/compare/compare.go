package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

	d.summarize()

	// A run that leaves something out does not speak for the whole.
	if !d.whole {
		return d.save()
	}

	d.describe(set, load, time.Since(began))

	if err := d.save(); err != nil {
		return err
	}

	return d.writePage()
}

// revision is the commit that was measured.
func revision(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}

	return strings.TrimSpace(string(text))
}

// document has the tables of a run, in a file or printed.
type document struct {
	settings

	revision string
	text     string
	fault    error
}

// open reads the tables of earlier runs.
func (d *document) open() error {
	if d.tables == "" {
		return nil
	}

	text, err := os.ReadFile(d.tables)
	if errors.Is(err, fs.ErrNotExist) && !d.redraw {
		d.text = "# What was measured\n"

		return os.MkdirAll(filepath.Dir(d.tables), 0o755)
	}

	d.text = string(text)

	return err
}

// add writes what a scenario found into its section: verdicts, and the table.
func (d *document) add(scenario scenarios.Scenario, results report.Results) error {
	var out strings.Builder

	verdicts := make([]report.Verdict, len(scenario.Targets))
	for i, target := range scenario.Targets {
		verdicts[i] = target.Judge(results)
	}

	if len(verdicts) > 0 {
		out.WriteString(report.Verdicts(verdicts) + "\n")
	}

	out.WriteString(report.Table(scenario.Columns, results))

	fmt.Fprintf(&out, "\n%s, %s, `%s`\n", time.Now().Format(time.DateOnly), d.revision, d.line)
	d.put(scenario.Name, scenario.Title, out.String())

	// What a run found before it was interrupted is not lost.
	return d.save()
}

// summarize puts what the sections say of targets, those of other runs too, into one table.
func (d *document) summarize() {
	if d.tables == "" {
		return // they were printed
	}

	var rows strings.Builder

	for _, scenario := range scenarios.All() {
		if section, found := report.Section(d.text, scenario.Name); found {
			rows.WriteString(report.StoredVerdicts(section))
		}
	}

	d.put("targets", "Targets", report.Sums(rows.String()))
}

// modules are those whose versions make a difference.
var modules = []string{
	"github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "modernc.org/sqlite",
	"github.com/pressly/goose/v3", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4",
	"github.com/redis/go-redis/v9", "go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk",
}

// describe says what was run and where: in short, which the page shows too, and what else was in it.
func (d *document) describe(set *servers.Set, load string, took time.Duration) {
	var run, parts strings.Builder

	fmt.Fprintf(&run, "- command: `make bench`, which ran `%s`: %d rounds of %s for each contestant, pools of %d connections\n",
		d.line, d.rounds, d.duration, d.pool)
	fmt.Fprintf(&run, "- date and revision: %s, %s; it took %s\n", time.Now().Format(time.DateOnly), d.revision, took.Round(time.Second))
	fmt.Fprintf(&run, "- machine: %s; load before %s, after %s\n", report.Machine(), load, report.Load())

	for _, server := range set.All() {
		if server.Missing != "" {
			fmt.Fprintf(&run, "- %s: not measured: %s\n", server.Name, server.Missing)
		} else {
			fmt.Fprintf(&run, "- %s\n", server.Version)
		}
	}

	d.put("run", "The run", run.String())

	fmt.Fprintf(&parts, "- modules: %s\n", report.Modules(modules...))

	for _, c := range d.contestants {
		if c.Note != "" {
			fmt.Fprintf(&parts, "- %s: %s\n", c.Name, c.Note)
		}
	}

	d.put("parts", "What was measured", parts.String())
}

// put replaces a section, or prints it.
func (d *document) put(section, title, text string) {
	text = fmt.Sprintf("## %s\n\n%s\n", title, text)

	if d.tables == "" {
		fmt.Print(text)

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
	if d.tables == "" || d.fault != nil {
		return d.fault
	}

	return os.WriteFile(d.tables, []byte(d.text), 0o644)
}
