package grants

import (
	"slices"

	"github.com/sqllock/sqllock/databases"
)

// Own are the statements of a strategy whose lock is in its rows, in one dialect, which
// take the place of those in [Statements]. What is empty stays as it is there.
type Own struct {
	// Acquire grants the name if it is free, and answers as that of Statements.
	Acquire databases.Statement
	// Row is what a release deletes besides.
	Row Leftover
	// Batch are the statements about many grants; nil if there are none.
	Batch *Batch
}

// Batch are the statements about many grants at a time. None of them waits for
// a row that somebody else has locked: that grant is dealt with alone.
//
// They bind an array for each column ("names", "owners" and so on, PostgreSQL), or
// "calls", a JSON array of objects, and once what those leave out: see call.
type Batch struct {
	// Create makes the names' rows, if they are not there, and the last gives them their first tokens. All bind the same.
	Create []databases.Statement
	// Acquire grants the names that are free. It returns the owner and the token of
	// each grant, and nothing where the dialect has InsertID.
	Acquire databases.Statement
	// State is that for one name with the name before its columns.
	State databases.Statement
	// Renew and Release act on each owner's grant. They return the owners, and whether
	// somebody waits. With InsertID they return nothing: Leases reads
	// name, owner and end of the owners' leases, and the insert id of Renew's
	// answer is the clock that it renewed by.
	Renew   databases.Statement
	Release databases.Statement
	Leases  databases.Statement
	// Rows are about what the strategy keeps beside the records, where Acquire and Release
	// do not see to it; nil if there is nothing.
	Rows *Rows
}

// Rows are the statements about rows that a strategy keeps beside the records of many grants.
type Rows struct {
	// Begin is of one transaction with what changes the records. If it is empty each statement commits by itself; then State
	// has the owner of the row, empty if there is none, after the name.
	Begin databases.Statement
	// Make makes the rows of the owners that have the records.
	Make databases.Statement
	// Delete deletes the rows of the owners, before their records are freed; in steps, of those that have the records.
	Delete databases.Statement
}

// Leftover are the rows that a strategy keeps beside the record, in one dialect: data
// from which it is made that whatever ends a grant takes them along. What is empty is
// not needed.
type Leftover struct {
	// With goes before the text of a statement that ends a grant, and deletes the
	// owner's row in it; $1 is the name and $2 the owner. Delete is that as a statement of
	// its own, where a statement cannot do both.
	With   string
	Delete databases.Statement
	// Stale lists rows, by name and owner, whose owner no longer has the name: their
	// holders crashed, or another strategy took the name over. Clear deletes one.
	Stale databases.Statement
	Clear databases.Statement
}

// plan is what a strategy sends in a dialect.
type plan struct {
	Dialect

	// fromLine is Acquire for one in line, and telling a Release that tells the first in line.
	fromLine, telling databases.Statement
	// beforeRelease goes before each release.
	beforeRelease []databases.Statement
	batch         *Batch
	leftovers     []Leftover
}

// plan puts together what a strategy sends.
func (d Dialect) plan(own Table[Own], leftovers []Table[Leftover]) *plan {
	p := &plan{Dialect: d}
	p.Force = slices.Clone(d.Force)

	mine, _ := own.For(d)

	if !d.OneByOne {
		p.batch = mine.Batch
	}

	if mine.Acquire.SQL != "" {
		p.Acquire = mine.Acquire
	}

	if p.fromLine = p.Acquire; p.FromLine != nil {
		p.fromLine = p.FromLine(p.Acquire)
	}

	for _, release := range []*databases.Statement{&p.Release, &p.ReleaseLater, &p.ReleaseTx, &p.Shares.End} {
		release.SQL = mine.Row.With + release.SQL
	}

	if p.telling = p.Release; p.Telling != nil {
		p.telling = p.Telling(p.Release)
	}

	p.beforeRelease = given(mine.Row.Delete)

	for _, table := range leftovers {
		left, _ := table.For(d)
		p.leftovers = append(p.leftovers, left)

		if left.With != "" {
			p.Force[0].SQL = left.With + p.Force[0].SQL
		}

		p.Force = append(p.Force, given(left.Delete)...)
	}

	return p
}

// given is the statement, if there is one.
func given(statement databases.Statement) []databases.Statement {
	if statement.SQL == "" {
		return nil
	}

	return []databases.Statement{statement}
}
