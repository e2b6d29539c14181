//go:build unix

// Command stress checks the promises of all strategies on all databases while faults strike: package stress
// says how.
//
//	stress [flags]
//
// It starts servers of its own, runs the known-bad variants, which must all be caught, and then the locks
// themselves, with -beside also in processes of two revisions. A round that could not be run, because a server did
// not come up or a connection of the set-up timed out, is tried again. It exits with 1 if a promise was broken or a
// variant was not caught, with 3 if something could not be run, which says nothing of the locks, and with 2 for wrong
// arguments.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/test/servers"
	"github.com/sqllock/sqllock/test/stress"
)

// Of the known-bad variants.
const (
	all    = "all"
	checks = "checks"
	none   = "none"
)

const (
	exitWrong  = 1
	exitUsage  = 2
	exitNotRun = 3
)

// besideShare is what part of a run is beside another revision, if not all of it.
const besideShare = 5

var exitCodes = map[stress.Verdict]int{stress.Well: 0, stress.NotRun: exitNotRun, stress.Wrong: exitWrong}

func main() {
	stress.RunWorker()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	code := run(ctx, os.Args[1:])

	stop()
	os.Exit(code)
}

// arguments are what the command line says.
type arguments struct {
	stress.Options

	variants string
	locks    bool
	beside   string
}

func parse(args []string) (arguments, error) {
	a := arguments{Options: stress.Options{Round: stress.DefaultSettings(), Log: os.Stdout}}

	flags := flag.NewFlagSet("stress", flag.ContinueOnError)
	pairs := flags.String("pair", "", "`pairs` to run: postgres/cas,mysql (a database or a strategy alone is all of its pairs); all if empty")
	faults := flags.String("faults", "", fmt.Sprintf("`kinds` of faults that strike, or none; all if empty: %s", stress.List(stress.Faults())))

	flags.DurationVar(&a.Duration, "duration", 2*time.Minute, "of the whole run, without the known-bad variants")
	flags.IntVar(&a.Rounds, "rounds", 0, "end each pair after so many rounds; 0 is no limit")
	flags.Uint64Var(&a.Seed, "seed", uint64(time.Now().UnixMilli()), "of the first round; it decides the faults and what the workers do")
	flags.DurationVar(&a.Round.Length, "round", a.Round.Length, "length of a round")
	flags.DurationVar(&a.Round.Lease, "lease", a.Round.Lease, "of the locks")
	flags.IntVar(&a.Round.Processes, "processes", a.Round.Processes, "worker processes")
	flags.IntVar(&a.Round.Goroutines, "goroutines", a.Round.Goroutines, "goroutines in each of them that use locks")
	flags.StringVar(&a.Folder, "folder", filepath.Join(os.TempDir(), "sqllock-histories"), "where the history of a round goes in which something was wrong")
	flags.StringVar(&a.variants, "variants", all, "run the known-bad variants first: all, one for each check (checks), or none")
	flags.BoolVar(&a.locks, "locks", true, "run the locks themselves")
	flags.StringVar(&a.beside, "beside", "", "run the locks, too, with every second worker of this `revision`, which is built from the clone's history; "+
		stress.Frozen+" is the recorded one; for a fifth of the duration, or all of it without -locks")

	if err := flags.Parse(args); err != nil {
		return a, err
	}

	var err error

	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case a.variants != all && a.variants != checks && a.variants != none:
		err = fmt.Errorf("-variants is %s, %s or %s, and not %q", all, checks, none, a.variants)
	case a.Round.Processes < 1 || a.Round.Goroutines < 1:
		err = errors.New("-processes and -goroutines must be at least 1")
	case a.beside != "" && a.Round.Processes < 2:
		err = errors.New("-beside needs at least two -processes")
	case a.Round.Lease < 500*time.Millisecond || a.Round.Length < a.Round.Lease:
		err = errors.New("-lease must be at least 500ms, and -round at least as long")
	}

	if err == nil {
		a.Pairs, err = stress.ParsePairs(*pairs, servers.Names())
	}

	if err == nil {
		a.Faults, err = stress.ParseFaults(*faults)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
	}

	return a, err
}

func run(ctx context.Context, args []string) (code int) {
	a, err := parse(args)

	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}

	var engines []string

	for _, pair := range a.Pairs {
		if !slices.Contains(engines, pair.Engine) {
			engines = append(engines, pair.Engine)
		}
	}

	set, err := servers.StartOwn(ctx, engines, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return exitNotRun
	}

	defer func() {
		if err := set.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "stress:", err)
			code = cmp.Or(code, exitNotRun)
		}
	}()

	verdict := stress.Well
	if a.variants != none {
		verdict = stress.ReportVariants(os.Stdout, stress.RunVariants(ctx, set, a.Options, a.variants == checks))
	}

	locks, mixed := a.Options, a.Options
	if a.locks && a.beside != "" {
		mixed.Duration /= besideShare
		locks.Duration -= mixed.Duration
	}

	if a.locks {
		verdict = max(verdict, stress.Report(os.Stdout, stress.Run(ctx, set, locks), a.Round.Lease))
	}

	if a.beside != "" {
		verdict = max(verdict, runBeside(ctx, set, mixed, a.beside))
	}

	return exitCodes[verdict]
}

// runBeside runs the locks with every second worker of another revision.
func runBeside(ctx context.Context, set *servers.Set, o stress.Options, revision string) stress.Verdict {
	other, err := stress.BuildRevision(ctx, revision)
	if err != nil {
		fmt.Printf("\nbeside %s: could not be run: %v\n", revision, err)

		return stress.NotRun
	}

	defer func() { _ = other.Remove() }()

	fmt.Printf("\nbeside %s:\n", other)

	o.Beside = other
	o.Folder = filepath.Join(o.Folder, "beside") // the seeds may be those of another run

	return stress.Report(os.Stdout, stress.Run(ctx, set, o), o.Round.Lease)
}
