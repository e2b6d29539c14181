package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	locks "github.com/sqllock/sqllock/adapters/prometheus"
	"github.com/sqllock/sqllock/internal/filelock"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

var errNotYet = errors.New("not so in time")

// samples are what a scrape sees of the collector: "name{labels} value" of each sample.
func samples(t *testing.T, c prometheus.Collector) []string {
	t.Helper()

	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	var text strings.Builder

	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}

	var lines []string

	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}

	return lines
}

// expect waits until the samples that are not zero are these, without those that are times.
func expect(t *testing.T, c prometheus.Collector, want ...string) {
	t.Helper()

	slices.Sort(want)

	filelock.Eventually(t, func() error {
		got := slices.DeleteFunc(samples(t, c), func(s string) bool {
			name, _, _ := strings.Cut(s, "{")
			name, _, _ = strings.Cut(name, " ")

			return strings.HasSuffix(s, " 0") || strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_sum") ||
				name == "sqllock_closest_call_seconds"
		})
		slices.Sort(got)

		if !slices.Equal(got, want) {
			return fmt.Errorf("samples = %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}

		return nil
	})
}

// sample returns the value of a sample, and whether there is one.
func sample(t *testing.T, c prometheus.Collector, name string) (value float64, ok bool) {
	t.Helper()

	for _, s := range samples(t, c) {
		if text, found := strings.CutPrefix(s, name+" "); found {
			if _, err := fmt.Sscan(text, &value); err != nil {
				t.Fatalf("%s: %v", s, err)
			}

			return value, true
		}
	}

	return 0, false
}

func TestAcquireWaitRelease(t *testing.T) {
	t.Parallel()

	file, metrics := filelock.NewFile(t), locks.New()
	locker, other := filelock.NewLocker(t, file, sqllock.WithObserver(metrics.Observe)), filelock.NewLocker(t, file)

	expect(t, metrics)

	theirs := filelock.Acquire(t, other, "name")

	if _, err := locker.TryAcquire(t.Context(), "name"); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Fatalf("TryAcquire = %v, want ErrNotAcquired", err)
	}

	ours := make(chan *sqllock.Lock, 1)

	go func() {
		lock, err := locker.Acquire(t.Context(), "name")
		if err != nil {
			t.Error(err)
		}

		ours <- lock
	}()

	filelock.UntilWaiting(t, other, "name", 1)
	filelock.Release(t, theirs)

	lock := <-ours

	expect(t, metrics,
		`sqllock_acquisitions_total{result="acquired"} 1`,
		`sqllock_acquisitions_total{result="not_acquired"} 1`,
		`sqllock_held 1`,
		`sqllock_wait_seconds_count{result="acquired"} 1`,
		`sqllock_wait_seconds_count{result="not_acquired"} 1`,
	)

	filelock.Release(t, lock)

	expect(t, metrics,
		`sqllock_acquisitions_total{result="acquired"} 1`,
		`sqllock_acquisitions_total{result="not_acquired"} 1`,
		`sqllock_hold_seconds_count 1`,
		`sqllock_wait_seconds_count{result="acquired"} 1`,
		`sqllock_wait_seconds_count{result="not_acquired"} 1`,
	)

	for _, name := range []string{`sqllock_wait_seconds_sum{result="acquired"}`, `sqllock_hold_seconds_sum`} {
		if v, ok := sample(t, metrics, name); !ok || v <= 0 || v > filelock.Deadline.Seconds() {
			t.Errorf("%s = %v, %v, want some time", name, v, ok)
		}
	}
}

func TestForced(t *testing.T) {
	t.Parallel()

	file, metrics := filelock.NewFile(t), locks.New()

	var renewals atomic.Int64

	renewed := make(chan struct{})
	observe := func(ctx context.Context, e sqllock.Event) {
		metrics.Observe(ctx, e)

		if e.Kind == sqllock.Renewed && renewals.Add(1) == 1 {
			close(renewed)
		}
	}

	locker, other := filelock.NewLocker(t, file, sqllock.WithObserver(observe), sqllock.WithLease(2*time.Second)), filelock.NewLocker(t, file)
	lock := filelock.Acquire(t, locker, "name")

	<-renewed

	if err := sqllocktest.ForceRelease(t.Context(), other, "name", "for a test"); err != nil {
		t.Fatal(err)
	}

	<-lock.Done()

	// Renewals are told of before the loss.
	filelock.Eventually(t, func() error {
		if n, _ := sample(t, metrics, `sqllock_losses_total{reason="forced"}`); n != 1 {
			return errNotYet
		}

		return nil
	})

	want := []string{
		`sqllock_acquisitions_total{result="acquired"} 1`,
		`sqllock_hold_seconds_count 1`,
		`sqllock_losses_total{reason="forced"} 1`,
		fmt.Sprintf(`sqllock_renewals_total %d`, renewals.Load()),
		`sqllock_wait_seconds_count{result="acquired"} 1`,
	}
	expect(t, metrics, want...)

	// Nothing is counted twice.
	if err := lock.Release(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}

	expect(t, metrics, want...)

	if left, ok := sample(t, metrics, "sqllock_closest_call_seconds"); !ok || left <= 0 || left >= 2 {
		t.Errorf("sqllock_closest_call_seconds = %v, %v, want less than the lease", left, ok)
	}
}

// The release is the first to find that the lock was taken away.
func TestLossFoundByRelease(t *testing.T) {
	t.Parallel()

	file, metrics := filelock.NewFile(t), locks.New()
	locker, other := filelock.NewLocker(t, file, sqllock.WithObserver(metrics.Observe), sqllock.WithTuning(sqllock.Tuning{NoHandOff: true})), filelock.NewLocker(t, file)
	lock := filelock.Acquire(t, locker, "name")

	if err := sqllocktest.ForceRelease(t.Context(), other, "name", "for a test"); err != nil {
		t.Fatal(err)
	}

	if err := lock.Release(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Fatalf("Release = %v, want ErrLost", err)
	}

	expect(t, metrics,
		`sqllock_acquisitions_total{result="acquired"} 1`,
		`sqllock_hold_seconds_count 1`,
		`sqllock_losses_total{reason="forced"} 1`,
		`sqllock_wait_seconds_count{result="acquired"} 1`,
	)
}

func TestRenewalsFail(t *testing.T) {
	t.Parallel()

	const lease = 4 * time.Second // on a busy machine one of a second ends before it is renewed once

	metrics := locks.New()
	locker, faulty := filelock.NewFaultyLocker(t, filelock.NewFile(t), sqllock.WithObserver(metrics.Observe), sqllock.WithLease(lease))

	faulty.Fail("renew", 1, sqllocktest.Before, nil)

	lock := filelock.Acquire(t, locker, "again")

	filelock.Eventually(t, func() error {
		if n, _ := sample(t, metrics, `sqllock_renewals_total`); n == 0 {
			return errNotYet
		}

		return nil
	})
	filelock.Release(t, lock)

	if n, _ := sample(t, metrics, `sqllock_renewal_failures_total`); n != 1 {
		t.Errorf("sqllock_renewal_failures_total = %v, want 1", n)
	}

	faulty.Fail("renew", 1000, sqllocktest.Before, nil)

	lock = filelock.Acquire(t, locker, "never")

	<-lock.Done()

	filelock.Eventually(t, func() error {
		if n, _ := sample(t, metrics, `sqllock_losses_total{reason="expired"}`); n != 1 {
			return errNotYet
		}

		return nil
	})

	if n, _ := sample(t, metrics, `sqllock_renewal_failures_total`); n < 3 {
		t.Errorf("sqllock_renewal_failures_total = %v, want 3 or more", n)
	}

	if left, ok := sample(t, metrics, "sqllock_closest_call_seconds"); !ok || left >= lease.Seconds()/2 {
		t.Errorf("sqllock_closest_call_seconds = %v, %v, want less than half of the lease", left, ok)
	}
}

func TestReleaseFails(t *testing.T) {
	t.Parallel()

	metrics := locks.New()
	locker, faulty := filelock.NewFaultyLocker(t, filelock.NewFile(t), sqllock.WithObserver(metrics.Observe), sqllock.WithTuning(sqllock.Tuning{NoHandOff: true}))
	lock := filelock.Acquire(t, locker, "name")

	faulty.Fail("release", 10, sqllocktest.Before, nil)

	failed := new(sqllock.ReleaseError)
	if err := lock.Release(t.Context()); !errors.As(err, &failed) {
		t.Fatalf("Release = %v, want a *ReleaseError", err)
	}

	expect(t, metrics,
		`sqllock_acquisitions_total{result="acquired"} 1`,
		`sqllock_hold_seconds_count 1`,
		`sqllock_release_failures_total 1`,
		`sqllock_wait_seconds_count{result="acquired"} 1`,
	)
}

// Readers who share a grant lose it together: the loss is told once, and the others when they are released.
func TestReaders(t *testing.T) {
	t.Parallel()

	file, metrics := filelock.NewFile(t), locks.New()
	locker := filelock.NewLocker(t, file, sqllock.WithObserver(metrics.Observe), sqllock.WithLease(time.Second))
	other := filelock.NewLocker(t, file)

	first := filelock.Acquire(t, locker, "name", sqllock.WithShared())
	second := filelock.Acquire(t, locker, "name", sqllock.WithShared())

	if v, _ := sample(t, metrics, "sqllock_held"); v != 2 {
		t.Errorf("sqllock_held = %v, want 2", v)
	}

	if err := sqllocktest.ForceRelease(t.Context(), other, "name", "for a test"); err != nil {
		t.Fatal(err)
	}

	<-first.Done()
	<-second.Done()

	for _, lock := range []*sqllock.Lock{first, second} {
		if err := lock.Release(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Release = %v, want ErrLost", err)
		}
	}

	filelock.Eventually(t, func() error {
		if v, _ := sample(t, metrics, "sqllock_held"); v != 0 {
			return fmt.Errorf("sqllock_held = %v, want 0", v)
		}

		return nil
	})
}

// The handles of a reentrant lock are one lock.
func TestReentrant(t *testing.T) {
	t.Parallel()

	metrics := locks.New()
	locker := filelock.NewLocker(t, filelock.NewFile(t), sqllock.WithObserver(metrics.Observe), sqllock.WithReentrant())
	outer := filelock.Acquire(t, locker, "name")

	inner, err := locker.Acquire(outer.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}

	if v, _ := sample(t, metrics, "sqllock_held"); v != 1 {
		t.Errorf("sqllock_held = %v, want 1", v)
	}

	filelock.Release(t, inner)
	filelock.Release(t, outer)

	expect(t, metrics,
		`sqllock_acquisitions_total{result="acquired"} 1`,
		`sqllock_hold_seconds_count 1`,
		`sqllock_wait_seconds_count{result="acquired"} 1`,
	)
}

func TestNames(t *testing.T) {
	t.Parallel()

	metrics := locks.New(locks.WithNames(func(name string) string {
		kind, _, _ := strings.Cut(name, "/")

		return kind
	}))
	locker := filelock.NewLocker(t, filelock.NewFile(t), sqllock.WithObserver(metrics.Observe))

	expect(t, metrics)

	for _, name := range []string{"customer/4711", "customer/4712", "nightly"} {
		filelock.Release(t, filelock.Acquire(t, locker, name))
	}

	expect(t, metrics,
		`sqllock_acquisitions_total{lock="customer",result="acquired"} 2`,
		`sqllock_acquisitions_total{lock="nightly",result="acquired"} 1`,
		`sqllock_hold_seconds_count{lock="customer"} 2`,
		`sqllock_hold_seconds_count{lock="nightly"} 1`,
		`sqllock_wait_seconds_count{lock="customer",result="acquired"} 2`,
		`sqllock_wait_seconds_count{lock="nightly",result="acquired"} 1`,
	)

	// So that a rate sees the first loss.
	if _, ok := sample(t, metrics, `sqllock_losses_total{lock="nightly",reason="expired"}`); !ok {
		t.Error("there are no zeros of what has not happened yet")
	}
}

// A label that is not UTF-8 would be a panic in the locker.
func TestLabelOfBytes(t *testing.T) {
	t.Parallel()

	metrics := locks.New(locks.WithNames(func(name string) string { return name[:1] }))
	metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.Acquired, Name: "über"})

	if v, _ := sample(t, metrics, "sqllock_held{lock=\"\uFFFD\"}"); v != 1 {
		t.Errorf("samples = %q, want one with a replacement character", samples(t, metrics))
	}
}

func TestResults(t *testing.T) {
	t.Parallel()

	for want, errs := range map[string][]error{
		"deadlock":             {&sqllock.DeadlockError{}},
		"closed":               {errors.Join(sqllock.ErrReleased, sqllock.ErrClosed)},
		"outer_ended":          {errors.Join(sqllock.ErrNotAcquired, sqllock.ErrLost), errors.Join(sqllock.ErrNotAcquired, sqllock.ErrReleased)},
		"unreachable":          {sqllock.ErrUnreachable, errors.Join(sqllock.ErrUnreachable, context.DeadlineExceeded)},
		"too_many_connections": {sqllock.ErrTooManyConnections},
		"read_only":            {sqllock.ErrReadOnly},
		"no_schema":            {&sqllock.SchemaError{}},
		"not_allowed":          {sqllock.ErrNotAllowed},
		"unsupported":          {sqllock.ErrUnsupported},
		"not_acquired":         {&sqllock.HeldError{}, errors.Join(sqllock.ErrNotAcquired, context.Canceled)},
		"canceled":             {context.Canceled, context.DeadlineExceeded},
		"error":                {sqllocktest.ErrBroken},
	} {
		metrics := locks.New()

		for _, err := range errs {
			metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.NotAcquired, Name: "name", Err: fmt.Errorf("wrapped: %w", err)})
		}

		expect(t, metrics,
			fmt.Sprintf(`sqllock_acquisitions_total{result="%s"} %d`, want, len(errs)),
			fmt.Sprintf(`sqllock_wait_seconds_count{result="not_acquired"} %d`, len(errs)),
		)
	}
}

func TestClosestCall(t *testing.T) {
	t.Parallel()

	synctest.Test(t, func(t *testing.T) {
		metrics := locks.New()

		at := func(want float64) {
			t.Helper()

			if got, ok := sample(t, metrics, "sqllock_closest_call_seconds"); got != want || ok != (want != 0) {
				t.Errorf("sqllock_closest_call_seconds = %v, %v, want %v", got, ok, want)
			}
		}

		at(0)
		metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.Renewed, Remaining: 20 * time.Second})
		at(20)
		metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.RenewalFailed, Remaining: 3 * time.Second})
		metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.Renewed, Remaining: 19 * time.Second})
		at(3)
		<-time.After(6 * time.Minute)
		metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.Renewed, Remaining: 18 * time.Second})
		at(3)
		<-time.After(5 * time.Minute)
		at(18)
		<-time.After(4 * time.Minute)
		at(18)
		<-time.After(time.Minute)
		at(0)
		metrics.Observe(t.Context(), sqllock.Event{Kind: sqllock.Renewed, Remaining: 17 * time.Second})
		<-time.After(time.Hour)
		at(0)
	})
}

func TestDatabase(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	locker, other := filelock.NewLocker(t, file), filelock.NewLocker(t, file)
	database := locks.NewDatabase(filelock.NewLocker(t, file), 0)
	named := locks.NewDatabase(filelock.NewLocker(t, file), 0, locks.WithNames(strings.ToUpper))

	expect(t, database, `sqllock_database_up 1`)
	expect(t, named, `sqllock_database_up 1`)

	lock := filelock.Acquire(t, other, "a")
	defer filelock.Release(t, filelock.Acquire(t, other, "b"))

	ended := make(chan struct{})

	go func() {
		defer close(ended)

		if ours, err := locker.Acquire(t.Context(), "a"); err != nil {
			t.Error(err)
		} else if err := ours.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}()

	filelock.UntilWaiting(t, other, "a", 1)

	for name, c := range map[string]prometheus.Collector{
		`sqllock_database_oldest_wait_seconds`:           database,
		`sqllock_database_oldest_wait_seconds{lock="A"}`: named,
	} {
		filelock.Eventually(t, func() error {
			if v, ok := sample(t, c, name); !ok || v <= 0 {
				return fmt.Errorf("%s = %v, %v, want some time", name, v, ok)
			}

			return nil
		})
	}

	got := slices.DeleteFunc(samples(t, named), func(s string) bool { return strings.Contains(s, "oldest") })
	want := []string{
		`sqllock_database_holders{lock="A"} 1`,
		`sqllock_database_holders{lock="B"} 1`,
		`sqllock_database_unheld_wait_seconds{lock="A"} 0`,
		`sqllock_database_unheld_wait_seconds{lock="B"} 0`,
		`sqllock_database_up 1`,
		`sqllock_database_waiters{lock="A"} 1`,
		`sqllock_database_waiters{lock="B"} 0`,
	}

	if !slices.Equal(got, want) {
		t.Errorf("samples = %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	filelock.Release(t, lock)
	<-ended

	expect(t, database, `sqllock_database_holders 1`, `sqllock_database_up 1`)
	expect(t, named, `sqllock_database_holders{lock="B"} 1`, `sqllock_database_up 1`)
}

// A name is waited for and nobody holds it: one that waits does not take what is free.
func TestUnheld(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	locker := filelock.NewLocker(t, file)
	database := locks.NewDatabase(filelock.NewLocker(t, file), 0)
	db := filelock.Open(t, file)

	wait := func(name string) {
		t.Helper()

		if _, err := db.ExecContext(t.Context(), `INSERT INTO sqllock_queue (process, id, name, ticket, expires_at)
VALUES ('process', ?1, ?1, unixepoch() * 1000000 - 1000000, unixepoch() * 1000000 + 600000000)`, name); err != nil {
			t.Fatal(err)
		}
	}

	const unheld = "sqllock_database_unheld_wait_seconds"

	// This one is held, though others wait for it.
	defer filelock.Release(t, filelock.Acquire(t, locker, "held"))

	wait("held")
	wait("free")
	expectZero := func() {
		t.Helper()

		if v, ok := sample(t, database, unheld); v != 0 || !ok {
			t.Errorf("%s = %v, %v, want 0", unheld, v, ok)
		}
	}

	expectZero()

	grows := func(than float64) (now float64) {
		t.Helper()

		filelock.Eventually(t, func() error {
			if now, _ = sample(t, database, unheld); now <= than {
				return fmt.Errorf("%s = %v, want more than %v", unheld, now, than)
			}

			return nil
		})

		return now
	}

	grows(grows(0))

	// Somebody else had it in between.
	if _, err := db.ExecContext(t.Context(), `DELETE FROM sqllock_queue WHERE name = 'free'`); err != nil {
		t.Fatal(err)
	}

	expectZero()
	wait("free")
	expectZero()

	if v, _ := sample(t, database, "sqllock_database_waiters"); v != 2 {
		t.Errorf("sqllock_database_waiters = %v, want 2", v)
	}
}

func TestDatabaseRecovery(t *testing.T) {
	t.Parallel()

	locker := filelock.NewPausingLocker(t, 90*time.Second)

	expect(t, locks.NewDatabase(locker, 0), `sqllock_database_recovery_seconds 90`, `sqllock_database_up 1`)
}

func TestDatabaseDown(t *testing.T) {
	t.Parallel()

	locker, faulty := filelock.NewFaultyLocker(t, filelock.NewFile(t))
	database := locks.NewDatabase(locker, 100*time.Millisecond)

	expect(t, database, `sqllock_database_up 1`)

	// One that does not answer, behind a driver that does not return when its context ends.
	_, resume := faulty.Hang("waiters", sqllocktest.Before)

	began := time.Now()

	if got := samples(t, database); !slices.Equal(got, []string{`sqllock_database_up 0`}) {
		t.Errorf("samples = %q, want the database down, and nothing else", got)
	}

	if took := time.Since(began); took > filelock.Deadline/2 {
		t.Errorf("the scrape took %s, the timeout is 100ms", took)
	}

	resume()
	expect(t, database, `sqllock_database_up 1`)
}

func TestLint(t *testing.T) {
	t.Parallel()

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(locks.New(), locks.NewDatabase(filelock.NewLocker(t, filelock.NewFile(t)), 0))

	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("GatherAndLint = %v, %v, want nothing", problems, err)
	}
}
