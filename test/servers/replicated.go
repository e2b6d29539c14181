package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Replication says what a commit on the primary waits for.
type Replication int

const (
	// Asynchronous commits wait for the primary's disk only.
	Asynchronous Replication = iota
	// Synchronous commits wait for the standby's disk, too: PostgreSQL's synchronous_commit=on with a
	// synchronous_standby_names. For postgres alone.
	Synchronous
)

// Replicated is a primary and its standby. Neither is anybody else's, so a test may end the one and promote
// the other: once, or again after [Replicated.Succeed].
type Replicated struct {
	kind        replicator
	way         way
	replication Replication

	mutex            sync.Mutex // of what Succeed changes
	last             int        // number of a server
	primary, standby *server
	spare            *server // which the next Succeed has follow; nil if it has to start one
}

// replicator is what databases do differently. The pools are of administrators.
type replicator interface {
	// primaryEngine is a server that others can follow.
	primaryEngine() engine
	// standbyEngine is one that will follow the primary. The number is another one with each server of the pair, from
	// firstStandby on.
	standbyEngine(ctx context.Context, primary *server, number int) (engine, error)
	// startsAlone says that a standby need not know its primary before it follows.
	startsAlone() bool
	// follow returns when the standby has caught up and follows.
	follow(ctx context.Context, to *server, primary, standby *sql.DB, replication Replication) error
	// caughtUp waits until the standby shows what the primary has committed.
	caughtUp(ctx context.Context, primary, standby *sql.DB) error
	// cut ends the link between them.
	cut(ctx context.Context, primary, standby *sql.DB) error
	// promote lets the standby take writes.
	promote(ctx context.Context, standby *sql.DB) error
}

// firstStandby is the number of a pair's first standby; its first primary is before it.
const firstStandby = 2

// StartReplicated brings up a primary and a standby of a database, postgres, mysql or mariadb: as containers, from
// programs on this machine, or from packages, in this order. A server that the environment names is none of
// the ways, because it could not be crashed. One line about each server goes to log.
func StartReplicated(ctx context.Context, name string, replication Replication, log io.Writer) (*Replicated, error) {
	kind, ok := map[string]replicator{
		"postgres": postgresReplicator{}, "mysql": mysqlReplicator{"mysql"}, "mariadb": mysqlReplicator{"mariadb"},
	}[name]
	if !ok || name != "postgres" && replication != Asynchronous {
		return nil, fmt.Errorf("%s: not to be had with a standby of that kind", name)
	}

	ways, err := waysOfPairs()
	if err != nil {
		return nil, err
	}

	var reasons []string

	for _, way := range ways {
		pair, err := startPair(ctx, way, kind, replication)
		if err == nil {
			for _, node := range []*server{pair.primary, pair.standby} {
				fmt.Fprintf(log, "%-9s %s %s\n", name, node.from, node.version)
			}

			return pair, nil
		}

		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: given up: %w", name, context.Cause(ctx))
		}

		reason := way.name + ": " + oneLine(err.Error())
		reasons = append(reasons, reason)

		var absent absentError
		if !errors.As(err, &absent) {
			fmt.Fprintf(log, "%-9s %s\n", name, reason)
		}
	}

	e := engines()[name]

	return nil, fmt.Errorf("%s: no primary with a standby; give Docker the image %s, or install %s, "+
		"or leave it out with SQLLOCK_TEST_DATABASES (tried %s)", name, e.image, e.product, strings.Join(reasons, "; "))
}

// waysOfPairs are the same for all pairs of a process, which may be started at the same time: one of them
// looks for an engine of containers, and one at a time installs packages.
var waysOfPairs = sync.OnceValues(func() ([]way, error) {
	maker, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}

	password := rand.Text()
	folders := newFolders(maker, password)

	return []way{
		{"container", newContainers(maker, password).get},
		{"binary", folders.get},
		{"apt", newPackages(folders).get},
	}, nil
})

func startPair(
	ctx context.Context, way way, kind replicator, replication Replication,
) (pair *Replicated, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	primary, err := way.get(ctx, kind.primaryEngine())
	if err != nil {
		return nil, err
	}

	pair = &Replicated{kind: kind, way: way, replication: replication, last: firstStandby - 1, primary: primary}

	defer func() {
		if err != nil {
			err = errors.Join(err, pair.Close())
		}
	}()

	pair.standby, err = pair.newStandby(ctx, primary)

	return pair, err
}

// newStandby starts a server that follows another one.
func (r *Replicated) newStandby(ctx context.Context, primary *server) (standby *server, err error) {
	r.mutex.Lock()
	standby, r.spare = r.spare, nil
	r.mutex.Unlock()

	if standby == nil {
		if standby, err = r.startStandby(ctx, primary); err != nil {
			return nil, err
		}
	}

	err = r.between(primary, standby, func(from, to *sql.DB) error {
		return r.kind.follow(ctx, primary, from, to, r.replication)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("follow: %w", err), standby.stop(context.WithoutCancel(ctx)))
	}

	return standby, nil
}

// startStandby starts a server that is to follow another one.
func (r *Replicated) startStandby(ctx context.Context, primary *server) (*server, error) {
	r.mutex.Lock()
	r.last++
	number := r.last
	r.mutex.Unlock()

	follower, err := r.kind.standbyEngine(ctx, primary, number)
	if err != nil {
		return nil, fmt.Errorf("primary: %w", err)
	}

	standby, err := r.way.get(ctx, follower)
	if err != nil {
		return nil, fmt.Errorf("standby: %w", err)
	}

	return standby, nil
}

// Prepare starts the server that the next [Replicated.Succeed] has follow, which takes longest of it. PostgreSQL's begins as a copy
// of its primary, so that there is nothing to prepare.
func (r *Replicated) Prepare(ctx context.Context) error {
	if !r.kind.startsAlone() {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	spare, err := r.startStandby(ctx, nil)

	r.mutex.Lock()
	defer r.mutex.Unlock()

	r.spare = spare

	return err
}

// Succeed makes the standby that was promoted the primary of a new standby, and removes the primary that was crashed.
// Clients may use the promoted one meanwhile.
func (r *Replicated) Succeed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	r.mutex.Lock()
	gone, primary := r.primary, r.standby
	r.primary, r.standby = primary, nil
	r.mutex.Unlock()

	standby, err := r.newStandby(ctx, primary)

	r.mutex.Lock()
	r.standby = standby
	r.mutex.Unlock()

	return errors.Join(err, gone.stop(ctx))
}

// on calls f with administrators' pools of both servers.
func (r *Replicated) on(f func(primary, standby *sql.DB) error) error {
	primary, standby := r.both()

	return r.between(primary, standby, f)
}

func (r *Replicated) between(from, to *server, f func(from, to *sql.DB) error) error {
	open := r.kind.primaryEngine().open

	primary, err := open(from.dsn)
	if err != nil {
		return err
	}
	defer primary.Close()

	standby, err := open(to.dsn)
	if err != nil {
		return err
	}
	defer standby.Close()

	return f(primary, standby)
}

func (r *Replicated) both() (primary, standby *server) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	return r.primary, r.standby
}

// PrimaryDSN reaches the server that was the primary at first, or since the last [Replicated.Succeed].
func (r *Replicated) PrimaryDSN() string {
	primary, _ := r.both()

	return primary.dsn
}

// StandbyDSN reaches the server that was the standby at first, or since the last [Replicated.Succeed].
func (r *Replicated) StandbyDSN() string {
	_, standby := r.both()

	return standby.dsn
}

// CaughtUp waits until the standby shows what the primary has committed.
func (r *Replicated) CaughtUp(ctx context.Context) error {
	return r.on(func(primary, standby *sql.DB) error { return r.kind.caughtUp(ctx, primary, standby) })
}

// Cut ends the link over which the standby learns of the primary's commits.
func (r *Replicated) Cut(ctx context.Context) error {
	return r.on(func(primary, standby *sql.DB) error { return r.kind.cut(ctx, primary, standby) })
}

// Crash ends the primary at once, and for good.
func (r *Replicated) Crash(ctx context.Context) error {
	primary, _ := r.both()

	return primary.power.crash(ctx)
}

// Promote makes the standby a primary, and returns when it takes writes.
func (r *Replicated) Promote(ctx context.Context) error {
	return r.on(func(_, standby *sql.DB) error { return r.kind.promote(ctx, standby) })
}

// Close takes all down and removes their data.
func (r *Replicated) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	r.mutex.Lock()
	defer r.mutex.Unlock()

	err := r.primary.stop(ctx)

	for _, other := range []*server{r.standby, r.spare} {
		if other != nil {
			err = errors.Join(err, other.stop(ctx))
		}
	}

	return err
}

func execAll(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}

	return nil
}

// until asks until the answer is true.
func until(ctx context.Context, db *sql.DB, query string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for {
		var answer bool

		err := db.QueryRowContext(ctx, query).Scan(&answer)

		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", query, err)
		case answer:
			return nil
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: still not: %w", query, context.Cause(ctx))
		}
	}
}
