// Service is a whole service, of which any number of replicas may run: an HTTP handler that writes under a lock of its customer, a leader
// with work of its own, a report that is made once a minute in all of them, a readiness probe, counters, a log, and an end on SIGTERM
// that makes nobody wait for a lease. Its user may create tables.
//
//	export DATABASE_URL=postgres://app:secret@localhost/app
//	sqllock migrate up
//	go run ./examples/service -listen localhost:8080 &
//	curl -X POST localhost:8080/customers/7/orders
//	curl localhost:8080/readyz localhost:8080/debug/vars
package main

import (
	"context"
	"errors"
	"expvar"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// The limits of a request, from the inside to the outside.
const (
	waitForLock = 5 * time.Second
	forWork     = 10 * time.Second
	forShutdown = 20 * time.Second
)

func main() {
	listen := flag.String("listen", "localhost:8080", "`address` to serve on")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := run(ctx, log, os.Getenv("DATABASE_URL"), *listen)

	stop()

	if err != nil {
		log.Error("the service has ended", "error", err)
		os.Exit(1)
	}
}

// service is what the parts share.
type service struct {
	log    *slog.Logger
	pool   *pgxpool.Pool
	locker *sqllock.Locker
}

func run(ctx context.Context, log *slog.Logger, url, listen string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()

	// The application's own table; a real one has it in its migrations.
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS example_orders (customer text, number bigint, token bigint, PRIMARY KEY (customer, number))`); err != nil {
		return err
	}

	events := expvar.NewMap("sqllock_events")

	locker, err := sqllock.New(cas.New(postgres.New(pool)), sqllock.WithLease(15*time.Second), sqllock.WithLogger(log),
		sqllock.WithObserver(func(_ context.Context, e sqllock.Event) { events.Add(e.Kind.String(), 1) }))
	if err != nil {
		return err
	}
	// When all else has ended, with a context that has not.
	defer func() { _ = locker.Close(context.WithoutCancel(ctx)) }()

	leader, err := election.New(locker, "example/leader")
	if err != nil {
		return err
	}

	s := &service{log, pool, locker}

	var group sync.WaitGroup
	defer group.Wait()

	// What ends one of them ends all.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	group.Go(func() { fail(leader.Run(ctx, s.lead)) })
	group.Go(func() { s.schedule(ctx) })

	if err := s.serve(ctx, listen); err != nil {
		return err
	}

	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}

	return nil
}

// serve answers requests until ctx ends, and those under way after that.
func (s *service) serve(ctx context.Context, listen string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /customers/{customer}/orders", s.order)
	mux.Handle("GET /debug/vars", expvar.Handler())
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.locker.Ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}

	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)

	go func() { served <- server.Serve(listener) }()

	s.log.InfoContext(ctx, "serving", "address", listener.Addr().String())

	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), forShutdown)
	defer cancel()

	return server.Shutdown(ending)
}

// order adds an order, with the next number of its customer.
func (s *service) order(w http.ResponseWriter, r *http.Request) {
	var (
		customer        = r.PathValue("customer")
		number          int64
		sent, committed bool
	)

	ctx, cancel := context.WithTimeout(r.Context(), waitForLock+forWork)
	defer cancel()

	err := s.locker.Do(ctx, "example/customer/"+customer, func(ctx context.Context, lock *sqllock.Lock) error {
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := lock.Guard(ctx, postgres.Tx(tx)); err != nil {
				return err
			}

			err := tx.QueryRow(ctx, `INSERT INTO example_orders SELECT $1, coalesce(max(number), 0) + 1, $2 FROM example_orders WHERE customer = $1
				RETURNING number`, customer, lock.Token()).Scan(&number)
			if err != nil {
				return err
			}

			sent = ctx.Err() == nil // it is committed next

			return ctx.Err()
		})
		committed = err == nil

		return err
	}, sqllock.WithMaxWait(waitForLock))
	if err != nil {
		s.log.WarnContext(ctx, "order", "customer", customer, "sent", sent, "committed", committed, "error", err)
	}

	switch {
	case committed:
		fmt.Fprintf(w, "order %d\n", number)
	case sent:
		http.Error(w, "it is not known whether the order was taken", http.StatusInternalServerError)
	case errors.Is(err, sqllock.ErrNotAcquired) && r.Context().Err() == nil:
		http.Error(w, "another order of this customer is being taken", http.StatusConflict)
	default:
		http.Error(w, "the order was not taken: try again", http.StatusServiceUnavailable)
	}
}

// lead is the work of the leader, until somebody else has to do it.
func (s *service) lead(ctx context.Context, term *sqllock.Lock) error {
	s.log.InfoContext(ctx, "this process leads", "term", term.Token())

	every := time.NewTicker(time.Second)
	defer every.Stop()

	for {
		select {
		case <-ctx.Done():
			s.log.InfoContext(ctx, "this process leads no more", "because", context.Cause(ctx))

			return nil
		case <-every.C: // the work
		}
	}
}

// schedule makes the report of each minute once in all processes. A report that fails is made again, here or by another process.
func (s *service) schedule(ctx context.Context) {
	tick := time.Now().UTC().Truncate(time.Minute)

	for ctx.Err() == nil {
		err := once.Do(ctx, s.locker, "example/report", tick, s.report)

		switch {
		case err == nil, errors.Is(err, once.ErrDone):
			tick = tick.Add(time.Minute)
		case ctx.Err() == nil:
			s.log.ErrorContext(ctx, "no report", "tick", tick, "error", err)
		}

		select {
		case <-time.After(max(time.Until(tick), time.Second)):
		case <-ctx.Done():
		}
	}
}

func (s *service) report(ctx context.Context, _ *sqllock.Lock) error {
	var orders int64
	if err := s.pool.QueryRow(ctx, `SELECT count(*) FROM example_orders`).Scan(&orders); err != nil {
		return err
	}

	s.log.InfoContext(ctx, "report", "orders", orders)

	return nil
}
