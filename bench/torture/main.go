// Command torture puts the locks of many libraries through the same faults, with the same checker, and writes what came of it
// as a page and a picture.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
	"github.com/sqllock/sqllock/bench/torture/internal/locks"
	"github.com/sqllock/sqllock/bench/torture/internal/page"
	"github.com/sqllock/sqllock/bench/torture/internal/servers"
	"github.com/sqllock/sqllock/bench/torture/internal/worker"
)

func main() {
	log.SetFlags(0)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])

	stop()

	if err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	// The other processes of a run are this program, too.
	switch first := append(args, "")[0]; first {
	case "worker":
		return worker.Run(ctx, os.Stdin, os.Stdout)
	case servers.APIServer:
		return servers.RunAPIServer(args[1:])
	}

	var (
		r       runner
		flags   = flag.NewFlagSet("torture", flag.ContinueOnError)
		only    = flags.String("locks", "", "a regular `expression` for the locks, SERVER/NAME; all by default")
		faults  = flags.String("faults", "", "a regular `expression` for the faults; all by default")
		record  = flags.String("record", "torture.json", "the `file` that gets what was counted")
		folder  = flags.String("page", "", "the `folder` whose README.md gets the table, and table.svg beside it")
		compare = flags.String("compare", "", "say which cells differ in kind from those of this record, a `file`")
		redraw  = flags.Bool("redraw", false, "torture nothing; take the record")
	)

	flags.StringVar(&r.events, "events", "", "the `folder` that gets what the processes of each trial told")
	flags.IntVar(&r.repeats, "repeats", 2, "how often each lock meets each fault; the worst counts")
	flags.IntVar(&r.lanes, "lanes", 6, "how many locks are tortured at a time")
	flags.DurationVar(&r.lease, "lease", 3*time.Second, "of all locks that let one choose; whole seconds")

	if err := flags.Parse(args); err != nil {
		return err
	}

	if err := r.choose(*only, *faults); err != nil {
		return err
	}

	if *folder != "" && *only+*faults != "" {
		return errors.New("-page wants all locks and all faults: leave -locks and -faults out")
	}

	// It may be the file that gets the new one.
	before, err := earlier(*compare)
	if err != nil {
		return err
	}

	if !*redraw {
		if err := r.record(ctx, *record); err != nil {
			return err
		}
	}

	return publish(*record, *folder, before)
}

// choose takes the locks and faults that the expressions match.
func (r *runner) choose(ids, faults string) error {
	lock, err := regexp.Compile(ids)
	if err != nil {
		return err
	}

	fault, err := regexp.Compile(faults)
	if err != nil {
		return err
	}

	r.locks = slices.DeleteFunc(locks.All(), func(l locks.Lock) bool { return !lock.MatchString(l.ID()) })
	r.faults = slices.DeleteFunc(judge.Faults(), func(f judge.Fault) bool { return !fault.MatchString(string(f)) })

	if len(r.locks) == 0 || len(r.faults) == 0 || r.repeats < 1 || r.lanes < 1 || r.lease < time.Second {
		return errors.New("no such lock or fault, or a number that is too small; see -help")
	}

	return nil
}

// earlier reads the record that the new one is compared with; nil if there is none.
func earlier(file string) (*page.Record, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // it is not asked for
	}

	found, err := judged(file)

	return &found, err
}

// judged reads a record, in the words and by the rules of today.
func judged(file string) (page.Record, error) {
	found, err := page.Read(file)
	if err != nil {
		return found, err
	}

	var known []locks.Lock

	for _, row := range found.Locks {
		if lock, ok := locks.Find(row.ID()); ok {
			known = append(known, lock)
		}
	}

	found.Locks = rows(known, found.Modules)

	for i, cell := range found.Cells {
		found.Cells[i] = cell.Judged(found.Lease)
	}

	return found, nil
}

// publish writes the page of a record, and compares it with an earlier one.
func publish(file, folder string, before *page.Record) error {
	found, err := judged(file)
	if err != nil {
		return err
	}

	if folder != "" {
		if err := page.Update(folder, found); err != nil {
			return err
		}
	}

	failed := 0

	for _, cell := range found.Cells {
		if cell.Kind == judge.Failed {
			failed++
		}
	}

	if failed > 0 {
		return fmt.Errorf("%d trials did not come about; the record says why", failed)
	}

	if before == nil {
		return nil
	}

	differences := page.Compare(*before, found)
	fmt.Print(differences)

	if len(differences) > 0 {
		return fmt.Errorf("%d cells are of another kind than in the earlier run", len(differences))
	}

	return nil
}
