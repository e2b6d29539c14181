package fuzz_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// FuzzDurations checks that durations are refused, in one line, or keep what they
// promise: the lock is trusted for no longer than the database was told, after an
// acquisition and after Extend, and the database is told what was asked for.
func FuzzDurations(f *testing.F) {
	const ms, s, hour = int64(time.Millisecond), int64(time.Second), int64(time.Hour)

	for _, d := range [][8]int64{
		{30 * s, 0, 0, 0, 20 * ms, s, 10 * ms, 60 * s},
		{ms, ms, ms, ms, ms, ms, 0, ms},
		{ms + 1, 1, 1, 1, ms, ms, 0, ms + 999},
		{366 * 24 * hour, math.MaxInt64, 366 * 24 * hour, 366 * 24 * hour, math.MaxInt64, math.MaxInt64, 1, 366 * 24 * hour},
		{0, -1, -1, -1, 0, -1, -1, 0},
		{math.MaxInt64, math.MinInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64 / 2, math.MaxInt64, math.MaxInt64, math.MinInt64},
		{s, 10 * ms, s, s, ms, s, 900 * ms, 2 * s},
	} {
		f.Add(d[0], d[1], d[2], d[3], d[4], d[5], 0.01, d[6], d[7], true)
		f.Add(d[0], d[1], d[2], d[3], d[4], d[5], 0.0, d[6], d[7], false)
	}

	f.Add(s, s, s, s, s, s, math.NaN(), s, s, true)
	f.Add(s, s, s, s, s, s, 0.9999999999999999, int64(0), s, false)

	f.Fuzz(func(t *testing.T, lease, maxHold, minHold, delay, low, high int64, drift float64, margin, extend int64, renews bool) {
		d := durations{
			lease: time.Duration(lease), maxHold: time.Duration(maxHold), minHold: time.Duration(minHold),
			delay: time.Duration(delay), low: time.Duration(low), high: time.Duration(high),
			drift: drift, margin: time.Duration(margin), extend: time.Duration(extend), renews: renews,
		}

		synctest.Test(t, d.check)
	})
}

type durations struct {
	lease, maxHold, minHold, delay, low, high, margin, extend time.Duration
	drift                                                     float64
	renews                                                    bool
}

func (d durations) options() []sqllock.LockerOption {
	options := []sqllock.LockerOption{
		sqllock.WithLease(d.lease), sqllock.WithMaxHold(d.maxHold), sqllock.WithMinHold(d.minHold),
		sqllock.WithLockDelay(d.delay), sqllock.WithTuning(sqllock.Tuning{PollMin: d.low, PollMax: d.high, ClockDrift: d.drift, ClockMargin: d.margin}),
	}
	if !d.renews {
		options = append(options, sqllock.WithoutRenewal())
	}

	return options
}

// check runs in a bubble, where no time passes between two lines.
func (d durations) check(t *testing.T) {
	db := &toldDB{}

	locker, err := sqllock.New(cas.New(db), d.options()...)
	if err != nil {
		if !errors.Is(err, sqllock.ErrInvalidOption) || strings.Contains(err.Error(), "\n") {
			t.Errorf("New() = %v, want one line of ErrInvalidOption", err)
		}

		return
	}

	lock, err := locker.TryAcquire(t.Context(), "a")
	if err != nil {
		t.Fatalf("TryAcquire() = %v", err)
	}

	d.trusted(t, "acquisition", lock, db, d.lease)
	d.told(t, "delay", db, d.delay)
	d.told(t, "min_hold", db, d.minHold)

	switch err := lock.Extend(t.Context(), d.extend); {
	case err == nil:
		d.trusted(t, "extension", lock, db, max(d.lease, d.extend))
	case !errors.Is(err, sqllock.ErrInvalidOption):
		t.Errorf("Extend(%s) = %v, want ErrInvalidOption", d.extend, err)
	}

	if err := locker.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v", err)
	}

	d.waits(t)
}

// trusted checks how long the lock is trusted.
func (d durations) trusted(t *testing.T, after string, lock *sqllock.Lock, db *toldDB, lease time.Duration) {
	t.Helper()

	remaining := lock.Remaining()

	if err := lock.Err(); err != nil || remaining <= 0 || remaining > lease || d.maxHold > 0 && remaining > d.maxHold {
		t.Errorf("after the %s with %+v: Remaining() = %s, %v", after, d, remaining, err)
	}

	if told := db.longest; remaining > told {
		t.Errorf("after the %s with %+v: trusted for %d ns, the database was told %d ns", after, d, remaining, told)
	}
}

// told checks that the database heard of a duration: no less, and less than a
// microsecond more.
func (d durations) told(t *testing.T, what string, db *toldDB, want time.Duration) {
	t.Helper()

	if got := db.micros(what); got < want || got >= want+time.Microsecond {
		t.Errorf("the database was told a %s of %d ns, want %d ns", what, got, want)
	}
}

// waits checks that who waits for a lock that is held pauses between attempts.
func (d durations) waits(t *testing.T) {
	t.Helper()

	db := &toldDB{held: true}

	locker, err := sqllock.New(cas.New(db), d.options()...)
	if err != nil {
		t.Fatal(err)
	}

	const wait = 10 * time.Millisecond
	if _, err := locker.Acquire(t.Context(), "a", sqllock.WithMaxWait(wait)); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("Acquire() = %v, want ErrNotAcquired", err)
	}

	// A pause is half of the lowest at least, and that a millisecond.
	if most := int(wait/(time.Millisecond/2)) + 1; db.attempts > most {
		t.Errorf("%d attempts in %s with %+v, want at most %d", db.attempts, wait, d, most)
	}

	if err := locker.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

// toldDB is a database that grants everything, or nothing, and remembers what it
// was told.
type toldDB struct {
	held bool

	mu       sync.Mutex
	values   databases.Values
	longest  time.Duration // lease; the database keeps the one that ends last
	attempts int
}

func (*toldDB) Dialect() databases.Dialect                      { return databases.Postgres }
func (db *toldDB) Conn(context.Context) (databases.Conn, error) { return db, nil }
func (*toldDB) Verify(context.Context, databases.Session) error { return nil }
func (*toldDB) Classify(error) databases.Class                  { return databases.Unknown }
func (*toldDB) MaxConns() int                                   { return 0 }
func (*toldDB) Release()                                        {}
func (*toldDB) Discard()                                        {}

func (db *toldDB) note(values databases.Values) {
	db.mu.Lock()
	db.values = values
	db.mu.Unlock()

	db.longest = max(db.longest, db.micros("lease"))
}

// micros is what the database was told last.
func (db *toldDB) micros(name string) time.Duration {
	db.mu.Lock()
	defer db.mu.Unlock()

	n, _ := db.values[name].(int64)

	return time.Duration(n) * time.Microsecond
}

func (db *toldDB) Run(
	_ context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	switch {
	case s.Name == "grant.renew":
		db.note(v)
	case s.Name == "cas.acquire" && !db.held:
		db.note(v)

		return result, each(func(dest ...any) error { *dest[0].(*int64) = 7; return nil })
	case s.Name == "cas.acquire":
		db.attempts++
	case s.Name == "grant.release":
		return result, each(func(dest ...any) error { *dest[0].(*bool) = false; return nil })
	case s.Name == "grant.state":
		// Held by another, for a year.
		return result, each(func(dest ...any) error {
			*dest[0].(*string), *dest[1].(*int64), *dest[3].(*int64) = "another", 6, (366 * 24 * time.Hour).Microseconds()

			return nil
		})
	}

	return databases.Result{RowsAffected: 1}, nil
}
