package tidb

import (
	"context"
	"errors"
	"slices"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
)

// wire writes down what is sent, and answers as it is told by the text.
type wire struct {
	sent  []string
	bound [][]string
	fail  map[string]error
	rows  map[string]int
}

func (w *wire) send(s databases.Statement) error {
	w.sent = append(w.sent, s.SQL)
	w.bound = append(w.bound, s.Args)

	return w.fail[s.SQL]
}

func (w *wire) Run(
	_ context.Context, s databases.Statement, _ databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	if err := w.send(s); err != nil || each == nil {
		return databases.Result{RowsAffected: 1}, err
	}

	for range w.rows[s.SQL] {
		if err := each(func(...any) error { return nil }); err != nil {
			return databases.Result{}, err
		}
	}

	return databases.Result{}, nil
}

func (w *wire) Release() {}
func (w *wire) Discard() {}

const (
	locks   = "SELECT a WHERE name = ? FOR UPDATE NOWAIT"
	changes = "UPDATE a SET b = ? WHERE c = ?"
)

var both = databases.Statement{
	Name: "both", SQL: locks, Args: []string{"x"}, Then: &databases.Statement{Name: "both", SQL: changes, Args: []string{"y", "z"}},
}

func numbered(number uint16) error { return &driver.MySQLError{Number: number} }

// TestTransactions: what is sent for a statement, and what an error of it means.
func TestTransactions(t *testing.T) {
	t.Parallel()

	lost := errors.New("the reply is lost")

	for name, c := range map[string]struct {
		statement databases.Statement
		rows      int
		fail      map[string]error

		sent     []string
		failed   bool
		class    databases.Class
		affected int64
	}{
		"one statement": {
			statement: databases.Statement{SQL: changes}, sent: []string{begin.SQL, changes, commit.SQL}, affected: 1,
		},
		"a row is found and changed": {statement: both, rows: 1, sent: []string{begin.SQL, locks, changes, commit.SQL}, affected: 1},
		"no row is found":            {statement: both, sent: []string{begin.SQL, locks, commit.SQL}},
		"somebody has it locked": {
			statement: both, fail: map[string]error{locks: numbered(3572)}, sent: []string{begin.SQL, locks, commit.SQL},
		},
		"a step is refused": {
			statement: both, rows: 1, fail: map[string]error{changes: numbered(1205)},
			sent: []string{begin.SQL, locks, changes, rollback.SQL}, failed: true, class: databases.Busy,
		},
		"it cannot be rolled back": {
			statement: both, rows: 1, fail: map[string]error{changes: numbered(1205), rollback.SQL: lost},
			sent: []string{begin.SQL, locks, changes, rollback.SQL}, failed: true, class: databases.Unknown,
		},
		"the commit conflicts": {
			statement: both, rows: 1, fail: map[string]error{commit.SQL: numbered(9007)},
			sent: []string{begin.SQL, locks, changes, commit.SQL}, failed: true, class: databases.Busy,
		},
		"the commit's reply is lost": {
			statement: both, rows: 1, fail: map[string]error{commit.SQL: lost},
			sent: []string{begin.SQL, locks, changes, commit.SQL}, failed: true, class: databases.Unknown,
		},
		"the commit is refused, as others would be": {
			statement: both, rows: 1, fail: map[string]error{commit.SQL: numbered(1105)},
			sent: []string{begin.SQL, locks, changes, commit.SQL}, failed: true, class: databases.Unknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := &wire{fail: c.fail, rows: map[string]int{locks: c.rows}}
			result, err := (&connection{Conn: w}).Run(t.Context(), c.statement, nil, nil)

			if !slices.Equal(w.sent, c.sent) {
				t.Errorf("it sent %q, want %q", w.sent, c.sent)
			}

			if (err != nil) != c.failed || c.failed && New(nil).Classify(err) != c.class {
				t.Errorf("Run() = %v, want an error: %t, of class %d", err, c.failed, c.class)
			}

			if result.RowsAffected != c.affected {
				t.Errorf("Run() changed %d rows, want %d", result.RowsAffected, c.affected)
			}
		})
	}
}

// TestSteps: each step binds what its placeholders are for.
func TestSteps(t *testing.T) {
	t.Parallel()

	w := &wire{rows: map[string]int{locks: 1}}

	rows := 0
	if _, err := (&connection{Conn: w}).Run(t.Context(), both, nil, func(databases.Row) error {
		rows++

		return nil
	}); err != nil || rows != 1 {
		t.Fatalf("Run() = %v with %d rows, want one", err, rows)
	}

	if got, want := w.bound[1:3], [][]string{{"x"}, {"y", "z"}}; !slices.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("the steps bound %q, want %q", got, want)
	}
}

// TestOpen: between BEGIN and COMMIT statements are parts of one transaction.
func TestOpen(t *testing.T) {
	t.Parallel()

	w := &wire{}
	c := &connection{Conn: w}

	for _, text := range []string{"BEGIN", changes, changes, "ROLLBACK", "BEGIN", changes, "COMMIT", changes} {
		if _, err := c.Run(t.Context(), databases.Statement{SQL: text}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}

	want := []string{
		begin.SQL, changes, changes, rollback.SQL, begin.SQL, changes, commit.SQL, begin.SQL, changes, commit.SQL,
	}
	if !slices.Equal(w.sent, want) {
		t.Errorf("it sent %q, want %q", w.sent, want)
	}
}
