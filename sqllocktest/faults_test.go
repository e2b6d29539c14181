package sqllocktest_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllocktest"
)

// fakeDB counts what reaches it. Every query has one row.
type fakeDB struct{ execs, queries, released, discarded int }

var errKnown = errors.New("refused: nothing happened")

func (*fakeDB) Dialect() databases.Dialect                      { return databases.SQLite }
func (d *fakeDB) Conn(context.Context) (databases.Conn, error)  { return fakeConn{d}, nil }
func (*fakeDB) Verify(context.Context, databases.Session) error { return nil }
func (*fakeDB) MaxConns() int                                   { return 7 }
func (*fakeDB) Classify(err error) databases.Class {
	if errors.Is(err, errKnown) {
		return databases.Busy
	}

	return databases.Unknown
}

type fakeConn struct{ db *fakeDB }

func (c fakeConn) Run(
	_ context.Context, _ databases.Statement, _ databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	if each == nil {
		c.db.execs++

		return databases.Result{RowsAffected: int64(c.db.execs)}, nil
	}

	c.db.queries++

	return databases.Result{}, each(func(...any) error { return nil })
}

func (c fakeConn) Release() { c.db.released++ }
func (c fakeConn) Discard() { c.db.discarded++ }

var (
	acquire = databases.Statement{Name: "cas.acquire"}
	renew   = databases.Statement{Name: "cas.renew"}
)

func faulty(t *testing.T) (*fakeDB, *sqllocktest.Faulty, databases.Conn) {
	t.Helper()

	db := &fakeDB{}
	f := sqllocktest.NewFaulty(db)

	conn, err := f.Conn(t.Context())
	if err != nil {
		t.Fatalf("Conn() = %v", err)
	}

	return db, f, conn
}

func TestFaultyFail(t *testing.T) {
	t.Parallel()

	for when, executed := range map[sqllocktest.When]int{sqllocktest.Before: 0, sqllocktest.After: 1} {
		db, f, conn := faulty(t)
		f.Fail("renew", 1, when, nil)

		if _, err := conn.Run(t.Context(), acquire, nil, nil); err != nil {
			t.Errorf("Run() of another statement = %v, want nil", err)
		}

		if _, err := conn.Run(t.Context(), renew, nil, nil); !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("Run() = %v, want driver.ErrBadConn", err)
		}

		if got := db.execs - 1; got != executed {
			t.Errorf("Fail(%d): executed %d times, want %d", when, got, executed)
		}

		// The connection is broken from now on.
		if _, err := conn.Run(t.Context(), acquire, nil, nil); !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("Run() on a broken connection = %v, want driver.ErrBadConn", err)
		}

		if n := f.Leaks(); n != 1 {
			t.Errorf("Leaks() = %d, want 1", n)
		}

		conn.Release()

		if n := f.Leaks(); n != 0 || len(f.Misuse()) != 1 || db.released != 0 || db.discarded != 1 {
			t.Errorf("Leaks() = %d, Misuse() = %q, %d released, %d discarded, want that the release is blamed",
				n, f.Misuse(), db.released, db.discarded)
		}
	}
}

func TestFaultyKnownErrorBreaksNothing(t *testing.T) {
	t.Parallel()

	db, f, conn := faulty(t)
	f.Fail("cas.renew", 1, sqllocktest.Before, errKnown)

	if _, err := conn.Run(t.Context(), renew, nil, nil); !errors.Is(err, errKnown) {
		t.Errorf("Run() = %v, want %v", err, errKnown)
	}

	if _, err := conn.Run(t.Context(), renew, nil, nil); err != nil {
		t.Errorf("the second Run() = %v, want nil", err)
	}

	conn.Release()

	if len(f.Misuse()) != 0 || db.released != 1 {
		t.Errorf("Misuse() = %q, %d released, want none and one", f.Misuse(), db.released)
	}
}

func TestFaultyTwice(t *testing.T) {
	t.Parallel()

	db, f, conn := faulty(t)
	defer conn.Discard()

	f.Twice("renew")

	result, err := conn.Run(t.Context(), renew, nil, nil)
	if err != nil || db.execs != 2 || result.RowsAffected != 1 {
		t.Errorf("Run() = %+v, %v after %d executions, want the first result of two", result, err, db.execs)
	}

	rows := 0

	if _, err := conn.Run(t.Context(), renew, nil, func(databases.Row) error {
		rows++

		return nil
	}); err != nil || rows != 1 || db.queries != 2 {
		t.Errorf("Run() = %d rows, %v after %d executions, want one row of two", rows, err, db.queries)
	}
}

func TestFaultyLostAnswerHasNoRows(t *testing.T) {
	t.Parallel()

	db, f, conn := faulty(t)
	defer conn.Discard()

	f.Fail("*", 1, sqllocktest.After, nil)

	if _, err := conn.Run(t.Context(), renew, nil, func(databases.Row) error {
		t.Error("Run() without an answer gave a row")

		return nil
	}); err == nil || db.queries != 1 {
		t.Errorf("Run() = %v after %d executions, want an error after one", err, db.queries)
	}
}

func TestFaultyPause(t *testing.T) {
	t.Parallel()

	db, f, conn := faulty(t)
	reached, resume := f.Pause("renew", sqllocktest.Before)
	done := make(chan error, 1)

	go func() {
		_, err := conn.Run(t.Context(), renew, nil, nil)
		done <- err
	}()

	<-reached

	if db.execs != 0 {
		t.Errorf("executed %d times before resume, want none", db.execs)
	}

	resume()
	resume() // Twice does no harm.

	if err := <-done; err != nil {
		t.Errorf("Run() = %v, want nil", err)
	}

	conn.Release()

	if got, want := f.Statements(), []string{"cas.renew"}; !slices.Equal(got, want) || f.Count("renew") != 1 {
		t.Errorf("Statements() = %q, Count() = %d, want %q and 1", got, f.Count("renew"), want)
	}
}

func TestFaultyPauseEndsWithTheContext(t *testing.T) {
	t.Parallel()

	_, f, conn := faulty(t)
	_, resume := f.Pause("renew", sqllocktest.After)

	defer resume()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := conn.Run(ctx, renew, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Run() = %v, want context.Canceled", err)
	}

	conn.Discard()
	conn.Discard()

	if f.Discarded() != 1 || len(f.Misuse()) != 1 {
		t.Errorf("Discarded() = %d, Misuse() = %q, want one and the second blamed", f.Discarded(), f.Misuse())
	}
}

// A test that fails an operation that there is none of would pass for nothing.
func TestMisspeltOperation(t *testing.T) {
	t.Parallel()

	memory := sqllocktest.NewMemory()

	for _, name := range []string{"acquire", "renew-all", "*", "status", "releasetx", "listen"} {
		_ = memory.Count(name)
		_ = memory.Peer().Count(name)
	}

	for what, call := range map[string]func(){
		"Fail":  func() { memory.Fail("acquired", 1, sqllocktest.Before, nil) },
		"Pause": func() { memory.Pause("renewal", sqllocktest.Before) },
		"Hang":  func() { memory.Peer().Hang("Release", sqllocktest.After) },
		"Twice": func() { memory.Twice("") },
		"Count": func() { memory.Count("acquires") },
	} {
		func() {
			defer func() {
				text := fmt.Sprint(recover())
				if !strings.Contains(text, what) || !strings.Contains(text, "acquire, acquire-all, raise, renew") {
					t.Errorf("%s() of a misspelt operation: %q, want a panic that names those there are", what, text)
				}
			}()

			call()
		}()
	}
}
