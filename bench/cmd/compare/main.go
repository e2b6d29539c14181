// Command compare measures this library and its peers side by side. It writes
// tables of all that it found into a file, and some of the figures, with plots,
// into docs/performance.md. `make bench` runs it, with databases in the
// environment.
//
//	compare -scenarios pair,own32 -rounds 5 -duration 2s
//
// Scenarios that are left out keep their tables, and the page stays as it is.
// With -redraw it measures nothing: it writes the page anew from the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/bench/internal/scenarios"
	"github.com/sqllock/sqllock/bench/internal/servers"
	"github.com/sqllock/sqllock/bench/internal/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	err := run(ctx)

	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context) error {
	// A worker ends with its input, so that no signal need reach it.
	if len(os.Args) == 2 && os.Args[1] == "worker" {
		return worker.Run(context.WithoutCancel(ctx), os.Stdin, os.Stdout)
	}

	s, err := parse(os.Args[1:])
	if err != nil {
		return err
	}

	if s.redraw {
		return redraw(s)
	}

	return compare(ctx, s)
}

// settings are those of the command line.
type settings struct {
	scenarios   []scenarios.Scenario
	contestants []contest.Contestant
	servers     []string
	duration    time.Duration
	rounds      int
	pool        int
	tables      string
	page        string
	programs    string
	redraw      bool

	// whole is true if nothing is left out, line is the command as the tables
	// tell it.
	whole bool
	line  string
}

func parse(args []string) (s settings, err error) {
	var names []string
	for _, scenario := range scenarios.All() {
		names = append(names, scenario.Name)
	}

	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	chosen := flags.String("scenarios", strings.Join(names, ","), "what to measure")
	only := flags.String("contestants", "", "a regular expression: whom to measure, as SERVER/NAME")
	on := flags.String("servers", strings.Join(servers.Names(), ","), "where to measure")
	flags.DurationVar(&s.duration, "duration", 600*time.Millisecond, "of each contestant in each round")
	flags.IntVar(&s.rounds, "rounds", 3, "how often each contestant has its turn")
	flags.IntVar(&s.pool, "pool", 32, "connections of a pool, of all contestants")
	flags.StringVar(&s.tables, "tables", "", "the file to write the tables into; else standard output")
	flags.StringVar(&s.page, "page", "", "a page that gets some of the figures and the plots; needs -tables")
	flags.StringVar(&s.programs, "programs", os.TempDir()+"/sqllock-bench-programs",
		"where programs from packages are kept")

	flags.BoolVar(&s.redraw, "redraw", false, "measure nothing; write the page from the tables")

	if err := flags.Parse(args); err != nil {
		return s, err
	}

	if flags.NArg() > 0 || s.rounds < 1 || s.duration <= 0 || s.pool < 1 {
		return s, errors.New("no arguments, and positive numbers only; see -help")
	}

	if (s.redraw || s.page != "") && s.tables == "" {
		return s, errors.New("-redraw and -page need -tables")
	}

	for name := range strings.SplitSeq(*chosen, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return s, fmt.Errorf("there is no scenario %q, only %s", name, strings.Join(names, ", "))
		}

		s.scenarios = append(s.scenarios, scenarios.All()[i])
	}

	s.servers = strings.Split(*on, ",")
	for _, name := range s.servers {
		if !slices.Contains(servers.Names(), name) {
			return s, fmt.Errorf("there is no server %q, only %s", name, strings.Join(servers.Names(), ", "))
		}
	}

	pattern, err := regexp.Compile(*only)
	if err != nil {
		return s, err
	}

	s.contestants = slices.DeleteFunc(contest.All(), func(c contest.Contestant) bool { return !pattern.MatchString(c.ID()) })
	s.whole = *only == "" && len(s.servers) == len(servers.Names()) && len(s.scenarios) == len(names)
	s.line = "compare"

	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"tables", "page", "programs"}, f.Name) {
			s.line += fmt.Sprintf(" -%s %s", f.Name, f.Value)
		}
	})

	return s, nil
}
