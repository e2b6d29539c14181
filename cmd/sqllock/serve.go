package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/page"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// serveFlags are the flags of "sqllock serve".
type serveFlags struct {
	database

	listen      string
	every       duration
	metricNames bool

	doctor doctorFlags // what the doctor is asked
}

// leastEvery is how often browsers may look at most.
const leastEvery = 100 * time.Millisecond

func newServe() *cobra.Command {
	f := &serveFlags{every: duration(2 * time.Second)}

	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Show the locks of a database to a browser",
		Long: `Show the locks of a database to a browser: who holds what, who waits for whom,
which names are taken though nobody holds them, and what the doctor says, who is
asked about SQLLOCK_STRATEGY and SQLLOCK_LEASE. Nothing is changed. The pages
keep themselves up to date; the database is looked at once for all browsers, and
not at all while no page is open. It ends with SIGINT or SIGTERM.

There is no password. It listens on the loopback address, so that only users of
this machine get there; give another address only behind something that decides
who may. A request has to name localhost, a loopback address or the host of
--listen as its host; if that is 0.0.0.0 or [::], any IP address will do.

  /healthz   200, or 503 with one line if the database has no answer within 2s;
             it is asked once a second at most. While nothing is granted after
             a fail-over it is 200, and a second line says so
  /metrics   for Prometheus: how many hold and wait, the oldest wait, and how
             long nothing is granted after a fail-over; with --metric-names for
             each name, too`,
		Example: `  sqllock serve
  sqllock serve --listen 127.0.0.1:9090 --every 5s --dsn-file /etc/app/dsn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.doctor.database, f.doctor.strategy, f.doctor.lease, f.doctor.holders = f.database, "cas", duration(sqllock.DefaultLease), defaultHolders

			if err := fromVariables(cmd, &f.doctor.strategy, &f.doctor.lease); err != nil {
				return usage(cmd, err)
			}

			if time.Duration(f.every) < leastEvery {
				return usage(cmd, fmt.Errorf("--every %s is shorter than %s", time.Duration(f.every), leastEvery))
			}

			host, port, err := net.SplitHostPort(f.listen)
			if err != nil {
				return usage(cmd, fmt.Errorf("--listen %s is not host:port", bounded(f.listen)))
			}

			host = cmp.Or(host, "127.0.0.1")

			return f.look(cmd.Context(), func(l looker) error { return f.serve(cmd.Context(), cmd.OutOrStdout(), l, host, port) })
		},
	}

	f.register(cmd)

	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "`host:port` to listen on; without a host it is 127.0.0.1")
	flags.Var(&f.every, "every", "how often pages look")
	flags.BoolVar(&f.metricNames, "metric-names", false, "have the names of locks among the metrics")

	return cmd
}

// Bounds of requests, and of how long the end waits for those that are answered.
const (
	headerTime = 5 * time.Second
	readTime   = 10 * time.Second
	writeTime  = time.Minute
	idleTime   = time.Minute
	endTime    = 2 * time.Second
	mostHeader = 64 << 10
)

// serve answers browsers until a signal ends it.
func (f *serveFlags) serve(ctx context.Context, out io.Writer, l looker, host, port string) error {
	handler := page.New(page.Config{
		Source: source{l, f.doctor}, Database: l.db.Target.String(), Host: host, Every: time.Duration(f.every),
		Plan:         fmt.Sprintf("For strategy %s and a lease of %s", f.doctor.strategy, &f.doctor.lease),
		TellsGuarded: l.db.Target.Dialect != databases.SQLite, MetricNames: f.metricNames,
	})

	signals, stop := process.Catch(endings()...)
	defer stop()

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return exitError{exitInternal, err}
	}

	if address, ok := listener.Addr().(*net.TCPAddr); !ok || !address.IP.IsLoopback() {
		warn(fmt.Sprintf("whoever reaches %s can see the names of locks and who holds them", listener.Addr()))
	}

	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: mostHeader, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}

	ended := make(chan error, 1)

	go func() { ended <- server.Serve(listener) }()

	if _, err := fmt.Fprintf(out, "http://%s/\n", listener.Addr()); err != nil {
		_ = server.Close()

		return exitError{exitInternal, err}
	}

	select {
	case err := <-ended:
		return exitError{exitInternal, err}
	case <-signals:
	}

	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()

	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}

	return nil
}

// source is the database for pages.
type source struct {
	looker

	doctor doctorFlags
}

// Look is a look at all locks and at all who wait.
func (s source) Look(ctx context.Context) (page.Locks, error) { return s.lookAt(ctx, "") }

// Answer looks at one name, which need not be anybody's.
func (s source) Answer(ctx context.Context) (string, error) {
	locks, err := s.lookAt(ctx, "healthz")

	return locks.Pause, err
}

// lookAt is a look at a name; empty is every name.
func (s source) lookAt(ctx context.Context, name string) (seen page.Locks, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()

	if seen.Locks, err = s.Holders(ctx, sqllock.Filter{Name: name}); err != nil {
		return seen, s.told(err)
	}

	if seen.Waiters, err = s.Waiters(ctx, sqllock.WaiterFilter{Name: name}); err != nil {
		return seen, s.told(err)
	}

	r, err := s.recovery(ctx)
	if seen.Left = r.Pause(); seen.Left > 0 {
		seen.Pause = doctor.Said(r)
	}

	return seen, s.told(err)
}

// Inspect is a closer look at one slot of a name.
func (s source) Inspect(ctx context.Context, name string, slot int) (sqllock.Status, error) {
	status, err := s.looker.Inspect(ctx, sqllock.SlotName(name, slot))

	return status, s.told(err)
}

// Examine asks the doctor.
func (s source) Examine(ctx context.Context) ([]doctor.Finding, error) {
	findings, err := s.doctor.findings(ctx, s.db.Target)

	return findings, s.told(err)
}

// told is an error as it would be told on stderr.
func (s source) told(err error) error {
	if err == nil {
		return nil
	}

	_, said := outcome(nil, refused(err, s.db.Target, exitNotAcquired))

	return toldError{said, err}
}

// toldError is an error with what is said of it.
type toldError struct {
	said  string
	error error
}

func (e toldError) Error() string { return e.said }

func (e toldError) Unwrap() error { return e.error }
