package kuberneteslock_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	_ "modernc.org/sqlite"

	kuberneteslock "github.com/sqllock/sqllock/adapters/kubernetes"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies/cas"
)

const (
	name = "controllers/invoices"

	lease = 3 * time.Second
	soon  = 60 * time.Second // more than anything takes here
)

// A target is a database of one test, with the tables of sqllock.
type target struct {
	driver, dsn string
	wrap        func(*sql.DB) databases.DB
}

// targets are the databases of SQLLOCK_TEST_DATABASES: without it, SQLite and all that a DSN is set for.
func targets() []string {
	list, chosen := os.LookupEnv("SQLLOCK_TEST_DATABASES")
	if chosen && strings.Contains(list, "postgres") || !chosen && os.Getenv("SQLLOCK_TEST_POSTGRES") != "" {
		return []string{"sqlite", "postgres"}
	}

	return []string{"sqlite"}
}

// fresh makes a database, which is dropped after the test. PostgreSQL without a DSN is a failure.
func fresh(t *testing.T, database string) target {
	t.Helper()

	on := target{
		driver: "sqlite",
		dsn: "file:" + filepath.Join(t.TempDir(), "locks.db") +
			"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)",
		wrap: func(db *sql.DB) databases.DB { return sqlite.New(db) },
	}

	if database == "postgres" {
		on = freshPostgres(t)
	}

	text, err := migrations.FS.ReadFile(database + "/00001_create_locks.sql")
	if err != nil {
		t.Fatal(err)
	}

	create, _, _ := strings.Cut(string(text), "-- +goose Down")

	if _, err := on.open(t).Exec(create); err != nil {
		t.Fatal(err)
	}

	return on
}

func freshPostgres(t *testing.T) target {
	t.Helper()

	u, err := url.Parse(os.Getenv("SQLLOCK_TEST_POSTGRES"))
	if err != nil || u.Host == "" {
		t.Fatalf("SQLLOCK_TEST_POSTGRES is no URL (%v); leave postgres out with SQLLOCK_TEST_DATABASES", err)
	}

	admin, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}

	u.Path = "sqllock_kubernetes_" + strings.ToLower(rand.Text()[:10])

	if _, err := admin.Exec("CREATE DATABASE " + u.Path); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if _, err := admin.Exec("DROP DATABASE " + strings.Trim(u.Path, "/") + " WITH (FORCE)"); err != nil {
			t.Error(err)
		}

		_ = admin.Close()
	})

	return target{driver: "pgx", dsn: u.String(), wrap: func(db *sql.DB) databases.DB { return postgres.NewStd(db) }}
}

func (on target) open(t *testing.T) *sql.DB {
	t.Helper()

	db, err := sql.Open(on.driver, on.dsn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}

func newLocker(t *testing.T, on target, db *sql.DB) *sqllock.Locker {
	t.Helper()

	locker, err := sqllock.New(cas.New(on.wrap(db)))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()

		_ = locker.Close(ctx)
	})

	return locker
}

// A candidate is a process with an elector, a locker and a pool of its own.
type candidate struct {
	lock *kuberneteslock.Lock
	db   *sql.DB

	ctx    context.Context //nolint:containedctx // that of its run, whose cause tests look at
	cancel context.CancelFunc
	ended  chan struct{} // the run is over
}

// An election has the candidates of a test, and sees that no two of them lead.
type election struct {
	on      target
	release bool          // ReleaseOnCancel
	lease   time.Duration // LeaseDuration

	mu         sync.Mutex
	candidates []*candidate
	led        chan *candidate // each who begins to lead
	tokens     []int64
}

func newElection(t *testing.T, release bool) *election {
	t.Helper()

	return &election{on: fresh(t, "sqlite"), release: release, lease: lease, led: make(chan *candidate, 100)}
}

func (e *election) join(t *testing.T) *candidate {
	t.Helper()

	db := e.on.open(t)

	e.mu.Lock()
	defer e.mu.Unlock()

	c := &candidate{db: db, ended: make(chan struct{})}
	c.lock = kuberneteslock.New(newLocker(t, e.on, db), name, fmt.Sprintf("candidate %d", len(e.candidates)))
	c.ctx, c.cancel = kuberneteslock.WithCancel(t.Context())
	e.candidates = append(e.candidates, c)

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: c.lock, LeaseDuration: e.lease, RenewDeadline: e.lease * 2 / 3, RetryPeriod: e.lease / 15, ReleaseOnCancel: e.release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { e.begins(t, c) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	go func() {
		defer close(c.ended)

		elector.Run(c.ctx)
	}()

	t.Cleanup(func() {
		c.cancel()
		<-c.ended
	})

	return c
}

// begins checks that nobody else leads, and that the token grew.
func (e *election) begins(t *testing.T, c *candidate) {
	t.Helper()

	e.mu.Lock()
	defer e.mu.Unlock()

	for _, other := range e.candidates {
		if other != c && other.lock.Held().Err() == nil && c.lock.Held().Err() == nil {
			t.Errorf("%s and %s lead at the same time", c.lock.Identity(), other.lock.Identity())
		}
	}

	if token := c.lock.Held().Token(); len(e.tokens) > 0 && token <= slices.Max(e.tokens) {
		t.Errorf("token %d after %v, want a larger one", token, e.tokens)
	} else {
		e.tokens = append(e.tokens, token)
	}

	e.led <- c
}

func (e *election) leader(t *testing.T) *candidate {
	t.Helper()

	select {
	case c := <-e.led:
		return c
	case <-time.After(soon):
		t.Fatal("nobody leads")

		return nil
	}
}

func (c *candidate) waitEnded(t *testing.T) {
	t.Helper()

	select {
	case <-c.ended:
	case <-time.After(soon):
		t.Fatalf("%s has not stopped", c.lock.Identity())
	}
}

// The leader ends and keeps its lock: another takes over when the lease has ended.
func TestTakeOver(t *testing.T) {
	t.Parallel()

	e := newElection(t, false)
	first := e.join(t)

	if got := e.leader(t); got != first {
		t.Fatalf("%s leads, want the only candidate", got.lock.Identity())
	}

	second := e.join(t)
	held := first.lock.Held()

	first.cancel()
	first.waitEnded(t)

	if err := held.Err(); err != nil {
		t.Errorf("the lock of the first is %v, want it to go on", err)
	}

	if got := e.leader(t); got != second {
		t.Errorf("%s leads, want the second", got.lock.Identity())
	}

	if err := held.Err(); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("the lock of the first is %v when the second leads, want ErrLost", err)
	}
}

// The leader gives its lock back: nobody waits for the lease, which is longer than the test.
func TestReleaseOnCancel(t *testing.T) {
	t.Parallel()

	e := newElection(t, true)
	e.lease = 3 * soon

	// The pause between two tries is a fifteenth of the lease: a candidate begins with a try.
	for range 3 {
		c := e.join(t)

		if got := e.leader(t); got != c {
			t.Fatalf("%s leads, want the only candidate", got.lock.Identity())
		}

		c.cancel()
		c.waitEnded(t)
	}
}

// A leader that lives stays the leader, for much longer than its lease.
func TestNoFlapping(t *testing.T) {
	t.Parallel()

	e := newElection(t, true)

	for range 3 {
		e.join(t)
	}

	leader := e.leader(t)

	var before []byte

	for renewals := 0; renewals < 30; {
		record, raw, err := e.candidates[0].lock.Get(t.Context())
		if err != nil || record.HolderIdentity != leader.lock.Identity() || record.LeaderTransitions != 0 {
			t.Fatalf("Get() = %+v, %v, want %s without transitions", record, err, leader.lock.Identity())
		}

		if !bytes.Equal(raw, before) {
			before = raw
			renewals++
		}
	}

	if len(e.led) != 0 {
		t.Errorf("%d others led", len(e.led))
	}
}

// The lock is taken away: under WithCancel the leader stops, and another leads.
func TestForced(t *testing.T) {
	t.Parallel()

	e := newElection(t, false)
	first := e.join(t)
	e.leader(t)

	second := e.join(t)
	locker := newLocker(t, e.on, e.on.open(t))

	// The first leads until its next renewal. So that the second does not begin before, of which
	// the election would complain, another takes the lock meanwhile.
	blocker := make(chan error, 1)

	go func() {
		lock, err := locker.Acquire(context.WithoutCancel(t.Context()), name, sqllock.WithMaxWait(time.Minute))
		if err == nil {
			<-first.ended

			err = lock.Release(context.WithoutCancel(t.Context()))
		}

		blocker <- err
	}()

	// Until the row of the name says so the second would not know that somebody waits.
	for db, waiting := e.on.open(t), 0; waiting == 0; {
		if err := db.QueryRow("SELECT count(*) FROM sqllock_locks WHERE waiting <> 0").Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}

	if err := sqllocktest.ForceRelease(t.Context(), newLocker(t, e.on, e.on.open(t)), name, "taken away by the test"); err != nil {
		t.Fatal(err)
	}

	first.waitEnded(t)

	var lost *sqllock.LostError
	if cause := context.Cause(first.ctx); !errors.As(cause, &lost) || lost.Reason != sqllock.ReasonTakenOver {
		t.Errorf("the cause of the end is %v, want a LostError with ReasonTakenOver", cause)
	}

	if err := <-blocker; err != nil {
		t.Error(err)
	}

	if got := e.leader(t); got != second {
		t.Errorf("%s leads, want the second", got.lock.Identity())
	}
}

// The leader's database does not answer any more: it stops before another leads.
func TestUnreachable(t *testing.T) {
	t.Parallel()

	e := newElection(t, false)
	first := e.join(t)
	e.leader(t)

	second := e.join(t)

	if err := first.db.Close(); err != nil {
		t.Fatal(err)
	}

	if got := e.leader(t); got != second {
		t.Errorf("%s leads, want the second", got.lock.Identity())
	}

	first.waitEnded(t)
}

func record(identity string, transitions int) resourcelock.LeaderElectionRecord {
	now := metav1.Now()

	return resourcelock.LeaderElectionRecord{
		HolderIdentity: identity, LeaseDurationSeconds: 30, AcquireTime: now, RenewTime: now, LeaderTransitions: transitions,
	}
}

// What client-go relies on, call by call.
func TestRecord(t *testing.T) {
	t.Parallel()

	for _, database := range targets() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()

			ctx, on := t.Context(), fresh(t, database)
			ours := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "ours")
			theirs := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "theirs")

			if _, _, err := theirs.Get(ctx); !apierrors.IsNotFound(err) {
				t.Errorf("Get() before all = %v, want NotFound", err)
			}

			if err := ours.Create(ctx, record("ours", 0)); err != nil {
				t.Fatal(err)
			}

			got, before, err := theirs.Get(ctx)
			if err != nil || got.HolderIdentity != "ours" || got.LeaseDurationSeconds != 30 {
				t.Errorf("Get() = %+v, %v, want ours for 30 s", got, err)
			}

			if d := got.RenewTime.Sub(got.AcquireTime.Time).Abs(); d > time.Second {
				t.Errorf("renewed %v after the acquisition, want at once", d)
			}

			for range 20 {
				if _, raw, err := theirs.Get(ctx); err != nil || !bytes.Equal(raw, before) {
					t.Fatalf("Get() again = %s, %v, want %s", raw, err, before)
				}
			}

			if err := theirs.Update(ctx, record("theirs", 1)); !errors.Is(err, sqllock.ErrNotAcquired) {
				t.Errorf("Update() of theirs = %v, want ErrNotAcquired", err)
			}

			// Until the clock has moved by more than the jitter that Get forgives.
			for deadline := time.Now().Add(soon); ; {
				if err := ours.Update(ctx, record("ours", 0)); err != nil {
					t.Fatal(err)
				}

				if _, raw, err := theirs.Get(ctx); err != nil || time.Now().After(deadline) {
					t.Fatalf("Get() after renewals = %s, %v, want others than before", raw, err)
				} else if !bytes.Equal(raw, before) {
					break
				}
			}

			if err := ours.Update(ctx, record("", 0)); err != nil {
				t.Errorf("Update() without a holder = %v", err)
			}

			if got, _, err := theirs.Get(ctx); err != nil || got.HolderIdentity != "" {
				t.Errorf("Get() after the release = %+v, %v, want no holder", got, err)
			}

			if err := theirs.Update(ctx, record("theirs", 1)); err != nil {
				t.Errorf("Update() of theirs = %v", err)
			}

			if got, _, err := ours.Get(ctx); err != nil || got.HolderIdentity != "theirs" || got.LeaderTransitions != 1 {
				t.Errorf("Get() = %+v, %v, want theirs after 1 transition", got, err)
			}

			if err := ours.Update(ctx, record("", 1)); !errors.Is(err, sqllock.ErrNotAcquired) {
				t.Errorf("Update() without a holder, and the lock is theirs = %v, want ErrNotAcquired", err)
			}
		})
	}
}

// Whoever has lost the lock does not acquire it again as if nothing had happened.
func TestLostIsNotAcquiredAgain(t *testing.T) {
	t.Parallel()

	ctx, on := t.Context(), fresh(t, "sqlite")
	lock := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "ours")

	if err := lock.Create(ctx, record("ours", 0)); err != nil {
		t.Fatal(err)
	}

	token := lock.Held().Token()

	if err := sqllocktest.ForceRelease(ctx, newLocker(t, on, on.open(t)), name, "taken away by the test"); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := lock.Update(ctx, record("ours", 0)); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Update() = %v, want ErrLost", err)
		}
	}

	lock.RecordEvent("stopped leading")

	if held := lock.Held(); held != nil {
		t.Errorf("Held() = %v, want nil", held)
	}

	if err := lock.Update(ctx, record("ours", 1)); err != nil || lock.Held().Token() <= token {
		t.Errorf("Update() = %v with token %d, want nil and more than %d", err, lock.Held().Token(), token)
	}
}

// A process does not take itself for the leader because one before it had the same identity.
func TestSameIdentity(t *testing.T) {
	t.Parallel()

	ctx, on := t.Context(), fresh(t, "sqlite")

	if err := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "pod-0").Create(ctx, record("pod-0", 0)); err != nil {
		t.Fatal(err)
	}

	got, _, err := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "pod-0").Get(ctx)
	if err != nil || got.HolderIdentity == "pod-0" || !strings.HasPrefix(got.HolderIdentity, "pod-0 (") {
		t.Errorf("Get() = %+v, %v, want pod-0 with its host", got, err)
	}
}

// A lock with the same name that is no leader's keeps candidates out, too.
func TestHeldOtherwise(t *testing.T) {
	t.Parallel()

	ctx, on := t.Context(), fresh(t, "sqlite")

	if _, err := newLocker(t, on, on.open(t)).Acquire(ctx, name); err != nil {
		t.Fatal(err)
	}

	lock := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "ours")

	if got, _, err := lock.Get(ctx); err != nil || got.HolderIdentity == "" || !got.AcquireTime.IsZero() {
		t.Errorf("Get() = %+v, %v, want a holder since no time that is known", got, err)
	}

	if err := lock.Update(ctx, record("ours", 0)); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("Update() = %v, want ErrNotAcquired", err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()

	ctx, on := t.Context(), fresh(t, "sqlite")

	short := record("ours", 0)
	short.LeaseDurationSeconds = 0 // LeaseDuration is less than a second

	lock := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "ours")
	if err := lock.Create(ctx, short); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Create() without a lease = %v, want ErrInvalidOption", err)
	}

	on.dsn = strings.Replace(on.dsn, "locks.db", "bare.db", 1)

	bare := kuberneteslock.New(newLocker(t, on, on.open(t)), name, "ours")
	if _, _, err := bare.Get(ctx); !errors.Is(err, sqllock.ErrNoSchema) {
		t.Errorf("Get() without tables = %v, want ErrNoSchema", err)
	}

	if got, want := lock.Describe(), `sqllock "controllers/invoices"`; got != want {
		t.Errorf("Describe() = %q, want %q", got, want)
	}
}
