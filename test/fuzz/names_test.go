// Package fuzz gives the library's ways in to Go's fuzzer: make fuzz.
package fuzz_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/insert"
	"github.com/sqllock/sqllock/test/schema"
)

// FuzzNames checks that a name is taken or refused as documented, that names
// which differ in a byte are two locks, and that the database gives names back as
// they were.
func FuzzNames(f *testing.F) {
	for _, pair := range [][2]string{
		{"a", "b"},
		{"a", "A"},
		{"a", "a "},
		{"a", "a\n"},
		{"a", ""},
		{"", "\x00"},
		{"a\x00", "a"},
		{"a\x1f0", "a"},
		{"\xff", "a"},
		{"é", "e\u0301"},
		{"ß", "ss"},
		{"%", "_"},
		{"'", "\\"},
		{"invoices/2026-11", "invoices/2026-1"},
		{"ab", "a"},
		{"\u202e", "\U0010ffff"},
		{strings.Repeat("x", 255), strings.Repeat("x", 256)},
		{"\ufffd", "\ufeff"},
	} {
		f.Add(pair[0], pair[1])
	}

	db := sqliteDB(f)

	var lockers []*sqllock.Locker

	for _, strategy := range []strategies.Strategy{cas.New(sqlite.New(db)), insert.New(sqlite.New(db))} {
		locker, err := sqllock.New(strategy)
		if err != nil {
			f.Fatal(err)
		}

		lockers = append(lockers, locker)
	}

	f.Fuzz(func(t *testing.T, a, b string) {
		for _, locker := range lockers {
			twoNames(t, locker, a, b)
		}

		// The rows stay; without this they would become many.
		for _, table := range []string{"sqllock_locks", "sqllock_inserts"} {
			if _, err := db.ExecContext(t.Context(), "DELETE FROM "+table); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func twoNames(t *testing.T, locker *sqllock.Locker, a, b string) {
	t.Helper()

	var want []string

	for _, name := range []string{a, b} {
		lock, err := locker.TryAcquire(t.Context(), name)
		valid := name != "" && len(name) <= sqllock.MaxNameLength && utf8.ValidString(name) && !strings.ContainsAny(name, "\x00\x1f")

		switch {
		case !valid:
			if !errors.Is(err, sqllock.ErrInvalidName) || strings.Contains(err.Error(), "\n") {
				t.Errorf("TryAcquire(%q) = %v, want one line of ErrInvalidName", name, err)
			}

			if _, err := locker.Inspect(t.Context(), name); !errors.Is(err, sqllock.ErrInvalidName) {
				t.Errorf("Inspect(%q) = %v, want ErrInvalidName", name, err)
			}

			continue
		case slices.Contains(want, name):
			if !errors.Is(err, sqllock.ErrNotAcquired) {
				t.Errorf("second TryAcquire(%q) = %v, want ErrNotAcquired", name, err)
			}

			continue
		case err != nil:
			t.Fatalf("TryAcquire(%q) = %v while %q is held", name, err, want)
		}

		defer func() {
			if err := lock.Release(t.Context()); err != nil {
				t.Errorf("Release of %q: %v", name, err)
			}

			if status, err := locker.Inspect(t.Context(), name); err != nil || status.Held() {
				t.Errorf("Inspect(%q) after the release = %+v, %v, want that nobody holds it", name, status, err)
			}
		}()

		want = append(want, name)
	}

	slices.Sort(want)
	wantHolders(t, locker, "", want)

	for _, name := range want {
		if held, err := locker.Inspect(t.Context(), name); err != nil || held.Name != name {
			t.Errorf("Inspect(%q) = %q, %v", name, held.Name, err)
		}

		wantHolders(t, locker, name, slices.DeleteFunc(slices.Clone(want), func(other string) bool {
			return !strings.HasPrefix(other, name)
		}))
	}
}

// wantHolders fails unless Holders lists the names, in the order of their bytes.
func wantHolders(t *testing.T, locker *sqllock.Locker, prefix string, want []string) {
	t.Helper()

	held, err := locker.Holders(t.Context(), sqllock.Filter{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, h := range held {
		got = append(got, h.Name)
	}

	if !slices.Equal(got, want) {
		t.Errorf("Holders(%q) = %q, want %q", prefix, got, want)
	}
}

// sqliteDB opens a new file with sqllock's tables. It need not outlive a crash.
func sqliteDB(f *testing.F) *sql.DB {
	f.Helper()

	db, err := sql.Open("sqlite", "file:"+filepath.Join(f.TempDir(), "locks.db")+"?_pragma=busy_timeout(5000)&_pragma=synchronous(OFF)")
	if err != nil {
		f.Fatal(err)
	}

	f.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)

	if err := schema.Up(context.Background(), db, databases.SQLite); err != nil {
		f.Fatal(err)
	}

	return db
}
