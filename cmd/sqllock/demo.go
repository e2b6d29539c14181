package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/demo"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/sqllock"
)

// demoFlags are the flags of "sqllock demo" and of its workers.
type demoFlags struct {
	database

	name     string
	lease    duration
	strategy string
}

func (f *demoFlags) register(cmd *cobra.Command) {
	f.database.register(cmd)
	f.lease = duration(2 * time.Second)
	cmd.Flags().Var(&f.lease, "lease", "the lock's lease; the demo takes about seven of it")
	strategyFlag(cmd, &f.strategy, strategyUsage)
}

func newDemo() *cobra.Command {
	f := &demoFlags{}

	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch three processes share a lock, and one of them die with it",
		Long: `Three processes contend for one lock. One is killed while it holds the lock,
and another takes over when its lease has run out. The demo checks what it saw:
never two holders, growing tokens, and a take-over; it exits with 1 if not.

It uses the database of --dsn, --dsn-file or DATABASE_URL, else a temporary
SQLite file. Where the tables of sqllock are missing, it makes them and leaves
them there.`,
		Example: `  sqllock demo
  sqllock demo --dsn-file ~/.sqllock --strategy insert`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()

			return f.demo(ctx, cmd)
		},
	}

	f.register(cmd)

	return cmd
}

func (f *demoFlags) demo(ctx context.Context, cmd *cobra.Command) error {
	remove, err := f.temporary()
	if err != nil {
		return err
	}
	defer remove()

	target, err := f.target()
	if err != nil {
		return err
	}

	f.name = "demo/" + rand.Text()[:8]

	if err := f.prepare(ctx, cmd, target); err != nil {
		return err
	}

	cmd.Printf("%d processes, one lock %q\n%s, strategy %s, lease %s\n\n",
		demo.Workers, f.name, target, f.strategy, &f.lease)

	self, err := os.Executable()
	if err != nil {
		return exitError{exitInternal, err}
	}

	d := demo.Demo{Lease: time.Duration(f.lease), Out: cmd.OutOrStdout(), Worker: func() *exec.Cmd { return f.worker(ctx, self) }}

	if err := d.Run(ctx); err != nil {
		return exitError{exitFailed, err}
	}

	return nil
}

// temporary names a fresh file unless the user named a database.
func (f *demoFlags) temporary() (remove func(), err error) {
	required, err := f.required()
	if err != nil {
		return nil, exitError{exitUsage, err}
	}

	if _, set := os.LookupEnv(dsn.Variable); set || required || f.url != "" || f.file != "" {
		return func() {}, nil
	}

	folder, err := os.MkdirTemp("", "sqllock-demo-")
	if err != nil {
		return nil, exitError{exitInternal, err}
	}

	f.url = "sqlite:" + filepath.Join(folder, "locks.db")

	return func() { _ = os.RemoveAll(folder) }, nil
}

// prepare acquires the lock once, so that whatever is wrong shows before there
// are three processes to say it, and makes the tables if they are missing.
func (f *demoFlags) prepare(ctx context.Context, cmd *cobra.Command, target dsn.Target) error {
	db, err := target.Open(ctx, true)
	if err != nil {
		return exitError{exitUnavailable, err}
	}
	defer db.Close()

	locker, err := f.locker(db)
	if err != nil {
		return refused(err, target, exitNotAcquired)
	}
	defer closeLocker(ctx, locker)

	once := func() error {
		return locker.TryDo(ctx, f.name, func(context.Context, *sqllock.Lock) error { return nil })
	}

	err = once()

	if errors.Is(err, sqllock.ErrNoSchema) {
		cmd.Println("the database has no tables of sqllock yet; making them (sqllock migrate up)")

		if _, err := migrate.Up(ctx, db); err != nil {
			return exitError{exitUnavailable, fmt.Errorf("migrate %s: %w", target, err)}
		}

		err = once()
	}

	return refused(err, target, exitNotAcquired)
}

func (f *demoFlags) locker(db *dsn.Database) (*sqllock.Locker, error) {
	return lockerOf(f.strategy, db,
		sqllock.WithLease(time.Duration(f.lease)), sqllock.WithPoll(10*time.Millisecond, 100*time.Millisecond))
}

// worker is the command of a worker's process.
func (f *demoFlags) worker(ctx context.Context, self string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self, demoWorkerCommand,
		"--name", f.name, "--lease", f.lease.String(), "--strategy", f.strategy)

	f.handOn(cmd)

	return cmd
}

const demoWorkerCommand = "demo-worker"

func newDemoWorker() *cobra.Command {
	f := &demoFlags{}

	cmd := &cobra.Command{
		Use: demoWorkerCommand, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.work(cmd.Context()) },
	}

	f.register(cmd)
	cmd.Flags().StringVar(&f.name, "name", "", "name of the lock")

	return cmd
}

func (f *demoFlags) work(ctx context.Context) error {
	target, err := f.target()
	if err != nil {
		return err
	}

	db, err := target.Open(ctx, false)
	if err != nil {
		return exitError{exitUnavailable, err}
	}
	defer db.Close()

	locker, err := f.locker(db)
	if err != nil {
		return refused(err, target, exitNotAcquired)
	}
	defer closeLocker(ctx, locker)

	if err := demo.Work(ctx, locker, f.name, time.Duration(f.lease), os.Stdin, os.Stdout); err != nil {
		return exitError{code: exitFailed} // it was reported
	}

	return nil
}
