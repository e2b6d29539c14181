package contest

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
)

// The names of this library's contestants that targets speak of.
const (
	CAS = "sqllock cas"
	// CASUnbatched is cas with a statement for each acquisition and release.
	CASUnbatched = "sqllock cas, unbatched"
	// CASNoHandOff is cas that gives every release back to the database.
	CASNoHandOff = "sqllock cas, no hand-off"
	// Insert, ForUpdate and Advisory are the other strategies.
	Insert    = "sqllock insert"
	ForUpdate = "sqllock forupdate"
	Advisory  = "sqllock advisory"
	// FloorStatements is what cas sends, without the locker around it.
	FloorStatements = "floor: the statements of cas"
)

// variant is a strategy and the options of its locker.
type variant struct {
	name     string
	strategy func(databases.DB) strategies.Strategy
	options  []sqllock.LockerOption
	servers  []string
}

func variants() []variant {
	var (
		casOn   = func(db databases.DB) strategies.Strategy { return cas.New(db) }
		servers = []string{"postgres", "mysql", "mariadb"}
		all     = []string{"postgres", "mysql", "mariadb", "sqlite"}
	)

	return []variant{
		{CAS, casOn, nil, all},
		{CASUnbatched, casOn, []sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{NoBatching: true})}, servers},
		{CASNoHandOff, casOn, []sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{NoHandOff: true})}, servers},
		{"sqllock cas, durable release", casOn, []sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{DurableRelease: true})}, servers[:1]},
		{
			"sqllock cas, asynchronous commit", casOn,
			[]sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{AsynchronousCommit: true})},
			servers[:1],
		},
		{Insert, func(db databases.DB) strategies.Strategy { return insert.New(db) }, nil, all},
		{ForUpdate, func(db databases.DB) strategies.Strategy { return forupdate.New(db) }, nil, servers},
		{Advisory, func(db databases.DB) strategies.Strategy { return advisory.New(db) }, nil, servers},
	}
}

func libraries() []Contestant {
	var all []Contestant

	for _, v := range variants() {
		for _, on := range v.servers {
			all = append(all, Contestant{
				Server: on, Name: v.name, Group: Library, Variant: v.options != nil,
				Open: func(ctx context.Context, c Config) (Locker, error) { return openLibrary(ctx, on, v, c) },
			})
		}
	}

	for _, on := range []string{"postgres", "mysql", "mariadb"} {
		all = append(all, Contestant{
			Server: on, Name: FloorStatements, Group: Floor,
			Open: func(ctx context.Context, c Config) (Locker, error) {
				p, err := openPool(ctx, on, c)
				if err != nil {
					return nil, err
				}

				return &statementsOnly{pool: p, strategy: cas.New(p.db), lease: c.Lease}, nil
			},
		})
	}

	return all
}

// statementsOnly sends what cas sends, one statement after the other. Nobody
// renews, waits, or sees to it that what was lost is told.
type statementsOnly struct {
	pool     *pool
	strategy *cas.Strategy
	lease    time.Duration
}

func (s *statementsOnly) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	grant, err := single.TryAcquire(ctx, s.strategy, strategies.Request{Name: name, Owner: rand.Text(), Lease: s.lease})
	if err != nil {
		return nil, err
	}

	return grant.Release, nil
}

func (s *statementsOnly) Close(context.Context) error { return s.pool.close() }

// SQLLock is an open contestant of this library, for scenarios that need more
// of it than a Locker has.
type SQLLock struct {
	*sqllock.Locker

	pool *pool
}

func openLibrary(ctx context.Context, on string, v variant, c Config) (Locker, error) {
	p, err := openPool(ctx, on, c)
	if err != nil {
		return nil, err
	}

	options := append([]sqllock.LockerOption{sqllock.WithLease(c.Lease)}, v.options...)

	locker, err := sqllock.New(v.strategy(p.db), options...)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}

	return &SQLLock{locker, p}, nil
}

// Acquire is that of Locker.
func (l *SQLLock) Acquire(ctx context.Context, _ int, name string) (Release, error) {
	lock, err := l.Locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}

	return lock.Release, nil
}

// Close is that of Locker.
func (l *SQLLock) Close(ctx context.Context) error {
	return errors.Join(l.Locker.Close(ctx), l.pool.close())
}

// Hold acquires a lock and keeps its handle.
func (l *SQLLock) Hold(ctx context.Context, name string) (*sqllock.Lock, error) {
	return l.Locker.Acquire(ctx, name)
}

// Transaction updates a row of the application's and commits, guarded by the
// lock unless that is nil.
func (l *SQLLock) Transaction(ctx context.Context, lock *sqllock.Lock) error {
	return l.pool.transaction(ctx, lock)
}
