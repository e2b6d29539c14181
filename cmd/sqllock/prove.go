package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/prove"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
)

// together says which flags of the doctor have no use with the others.
func (f *doctorFlags) together(cmd *cobra.Command) error {
	looks, proves := []string{"lease", "holders", "fail-on"}, []string{"prove-here", "case"}

	for _, name := range looks {
		if f.prove && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for the doctor without --prove", name)
		}
	}

	for _, name := range proves {
		if !f.prove && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for --prove", name)
		}
	}

	if f.prove && len(prove.Cases(f.only)) == 0 {
		return fmt.Errorf("--case %s: no case has that in its name", bounded(f.only))
	}

	return nil
}

// probeTime bounds what comes before the cases.
const probeTime = time.Minute

// proof is "sqllock doctor --prove".
func (f *doctorFlags) proof(cmd *cobra.Command) error {
	target, err := f.target()
	if err != nil {
		return err
	}

	if f.here && target.Dialect == databases.SQLite {
		return usage(cmd, errors.New("--prove-here is for servers: on SQLite a proof has a file of its own"))
	}

	chosen := strategyNames()
	if cmd.Flags().Changed("strategy") || os.Getenv(strategyVariable) != "" {
		if _, err := strategy(f.strategy, nil); err != nil {
			return err
		}

		chosen = []string{f.strategy}
	}

	// What was made is removed also when this process is told to end.
	signals, stop := process.Notify()
	defer stop()

	report, err := interruptible(cmd.Context(), signals, func(ctx context.Context) (proofReport, error) {
		return f.try(ctx, target, chosen)
	})
	if err != nil {
		return refused(err, target, exitNotAcquired)
	}

	if err := report.print(cmd.OutOrStdout(), f.json); err != nil {
		return err
	}

	return report.outcome()
}

// try makes the tables, tries the strategies and removes the tables.
func (f *doctorFlags) try(ctx context.Context, target dsn.Target, chosen []string) (report proofReport, err error) {
	begun := time.Now()
	report.Target, report.SQLlock = target.String(), ownVersion()

	report.Untested, err = untested(ctx, target)
	if err != nil {
		return report, err
	}

	if report.Untested != "" {
		warn("sqllock refuses this server by its name, and tries it all the same: " + report.Untested)
	}

	making, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()

	place, err := prove.Make(making, target, f.here, report.Untested != "")
	if place != nil {
		defer func() {
			if removeErr := place.Remove(ctx); removeErr != nil {
				warn("what the proof made could not be removed: " + removeErr.Error() + "; remove it with: " + place.Statement())
			}
		}()
	}

	if err != nil {
		return report, err
	}

	report.Place = place.Name

	warn("the proof has its tables in " + where(place, target))
	warn("after a crash, run: " + place.Statement())

	for _, statement := range place.Leftovers(making) {
		warn("another proof runs here, or has crashed; if none runs: " + statement)
	}

	if report.Server, err = serverOf(making, place.Target); err != nil {
		return report, err
	}

	works, err := f.probes(making, place.Target, &report, chosen)
	if err != nil {
		return report, err
	}

	err = f.tryAll(ctx, place, works, &report, begun)

	return report, err
}

// tryAll tries those strategies that were asked for and work there.
func (f *doctorFlags) tryAll(ctx context.Context, place *prove.Place, works []string, report *proofReport, begun time.Time) error {
	self, err := os.Executable()
	if err != nil {
		return exitError{exitInternal, err}
	}

	cases := prove.Cases(f.only)
	told := newProving(cases, len(report.toTry()))

	defer told.end()

	proof := prove.Proof{
		Cases: cases, Tell: told.ended,
		Command: func(ctx context.Context, name string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, self, proveStrategyCommand, "--strategy", name, "--case", f.only, "--rivals",
				strings.Join(slices.DeleteFunc(slices.Clone(works), func(other string) bool { return other == name }), ","))

			switch {
			case place.Target.Dialect == databases.SQLite:
				cmd.Args = append(cmd.Args, "--place", place.Target.Path)
			case place.Name != "":
				cmd.Args = append(cmd.Args, "--place", place.Name)
			}

			if report.Untested != "" {
				cmd.Args = append(cmd.Args, "--untested")
			}

			f.handOn(cmd)

			return cmd
		},
	}

	for i, result := range report.Strategies {
		if !result.tried() {
			continue
		}

		if report.Strategies[i].Result, err = proof.Try(ctx, result.Strategy); err != nil {
			return err
		}
	}

	report.Seconds = time.Since(begun).Seconds()

	return nil
}

// untested is what sqllock says of a server that it refuses by its name; empty if it does not.
func untested(ctx context.Context, target dsn.Target) (string, error) {
	if target.Dialect == databases.SQLite {
		return "", nil
	}

	db, err := target.OpenToLook(ctx)
	if err != nil {
		return "", exitError{exitUnavailable, err}
	}
	defer db.Close()

	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()

	conn, err := db.Locks.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Release()

	err = db.Locks.Verify(ctx, conn)

	if server := (*databases.ServerError)(nil); errors.As(err, &server) && server.Untested {
		return server.Found, nil
	}

	return "", err
}

// serverOf is what the server says of itself.
func serverOf(ctx context.Context, target dsn.Target) (said string, err error) {
	db, err := target.Open(ctx, false)
	if err != nil {
		return "", err
	}
	defer db.Close()

	query := map[databases.Dialect]string{
		databases.Postgres: "SELECT version()",
		databases.MySQL:    "SELECT CONCAT('MySQL protocol, ', @@version, ', ', @@version_comment)",
		databases.TiDB:     "SELECT TIDB_VERSION()",
		databases.SQLite:   "SELECT 'SQLite ' || sqlite_version()",
	}[target.Dialect]

	return said, db.SQL.QueryRowContext(ctx, query).Scan(&said)
}

// probes acquires a lock with each strategy, and returns those that work there. Those that were asked for have a place in
// the report.
func (f *doctorFlags) probes(ctx context.Context, target dsn.Target, report *proofReport, chosen []string) (works []string, err error) {
	db, err := target.Open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer db.Close()

	for _, name := range strategyNames() {
		result := prove.Result{Strategy: name}
		err := probe(ctx, name, db)

		switch {
		case err == nil:
			works = append(works, name)
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, sqllock.ErrUnsupported), errors.Is(err, sqllock.ErrInvalidOption), errors.Is(err, databases.ErrWrongServer):
			result.Refused = inShellWords(err).Error()
		default:
			result.Failed = inShellWords(err).Error()
		}

		if slices.Contains(chosen, name) {
			report.Strategies = append(report.Strategies, strategyReport{result})
		}
	}

	return works, nil
}

func probe(ctx context.Context, name string, db *dsn.Database) error {
	locker, err := lockerOf(name, db)
	if err != nil {
		return err
	}
	defer closeLocker(ctx, locker)

	return locker.TryDo(ctx, "probe", func(context.Context, *sqllock.Lock) error { return nil })
}

// where says where the tables of a proof are.
func where(place *prove.Place, target dsn.Target) string {
	switch {
	case place.Name == "":
		return target.String()
	case target.Dialect == databases.Postgres:
		return "the schema " + place.Name
	case target.Dialect == databases.MySQL, target.Dialect == databases.TiDB:
		return "the database " + place.Name
	default:
		return "the folder " + place.Name
	}
}

// proveStrategyFlags are those of the process that tries a strategy.
type proveStrategyFlags struct {
	database

	strategy, rivals, place, only string
	untested                      bool
}

const proveStrategyCommand = "prove-strategy"

// Of a process that tries a strategy: what is beneath it, and how long its history lasts. They are for tests.
var (
	edit    func(databases.DB) databases.DB //nolint:gochecknoglobals // set by the tests' main
	editTx  func(databases.Tx) databases.Tx //nolint:gochecknoglobals // the same
	history time.Duration                   //nolint:gochecknoglobals // the same
)

func newProveStrategy() *cobra.Command {
	f := &proveStrategyFlags{}

	cmd := &cobra.Command{
		Use: proveStrategyCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.serve() },
	}

	f.register(cmd)

	flags := cmd.Flags()
	flags.StringVar(&f.strategy, "strategy", "", "the one that is tried")
	flags.StringVar(&f.rivals, "rivals", "", "others that work there")
	flags.StringVar(&f.place, "place", "", "where the tables are")
	flags.StringVar(&f.only, "case", "", "what the names of the cases contain")
	flags.BoolVar(&f.untested, "untested", false, "admit a server that is refused by its name")

	return cmd
}

func (f *proveStrategyFlags) serve() error {
	target, err := f.target()
	if err != nil {
		return err
	}

	maker := func(name string) func(databases.DB) strategies.Strategy {
		return func(db databases.DB) strategies.Strategy {
			s, err := strategy(name, db)
			if err != nil {
				panic(err) // it was asked for by the process that tries it
			}

			return s
		}
	}

	trial := prove.Trial{
		Target: target.Proving(f.place, f.untested), Strategy: f.strategy, Make: maker(f.strategy),
		Cases: prove.Cases(f.only), Edit: edit, EditTx: editTx, History: history,
	}

	for name := range strings.SplitSeq(f.rivals, ",") {
		if name != "" {
			trial.Rivals = append(trial.Rivals, maker(name))
		}
	}

	trial.Serve()

	return nil
}
