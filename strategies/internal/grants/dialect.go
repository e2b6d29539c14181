package grants

import (
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// Dialect is all that one family of servers has of its own: what it is sent, and
// what is to be known of its answers.
type Dialect struct {
	// Name is what databases.DB answers.
	Name databases.Dialect

	// WithoutReturning: what a statement has to say is in the insert id of its answer, because
	// none that changes rows returns them. The token is there, zero if the name was not
	// free, and 1 of a release that somebody waits for. Of a batch it does not say
	// enough, so that leases are read besides. Otherwise a row says it.
	WithoutReturning bool
	// Resolution is that of the clock, where it is coarser than a microsecond: it may
	// be late by as much, so that a lease that begins now would end too early.
	Resolution time.Duration
	// LeavesLine: an acquisition from the line takes its owner out of that. Otherwise Leave has to follow.
	LeavesLine bool
	// OneWriter: there is one write lock for all names. A caller that is refused for
	// another's transaction knows nothing of the name.
	OneWriter bool
	// OneByOne: no statement is about several names or waiters but Leave. Waiters of a batch go one after the other in a
	// transaction, and there are no other batches.
	OneByOne bool
	// WhyReadOnly says what a server that takes no writes may lack; empty where the
	// error says it.
	WhyReadOnly string
	// IdleLimit is a lease as the server's limit on idle sessions has it, never shorter;
	// nil where there are no strategies that hold a session.
	IdleLimit func(lease time.Duration) any

	Statements
}

// dialects are those that there are, as a strategy has them. A file is read when the first strategy on its database is made.
var dialects = map[databases.Dialect]func(strategy string) Dialect{
	databases.Postgres: reading("postgres.sql", "$", true, Dialect{
		LeavesLine: true,
		// Text in milliseconds.
		IdleLimit: func(lease time.Duration) any { return fmt.Sprint(roundUp(lease, time.Millisecond)) },
	}),
	databases.MySQL: reading("mysql.sql", "?", false, Dialect{
		WithoutReturning: true,
		// Whole seconds.
		IdleLimit: func(lease time.Duration) any { return roundUp(lease, time.Second) },
	}),
	databases.TiDB: reading("tidb.sql", "?", false, Dialect{OneByOne: true, Resolution: time.Millisecond}),
	databases.SQLite: reading("sqlite.sql", "?", true, Dialect{
		Resolution: time.Millisecond, OneWriter: true, WhyReadOnly: "the process needs to write the file and its folder",
	}),
}

// reading reads the statements of a dialect from a file, which is part of the program.
func reading(file, mark string, numbered bool, dialect Dialect) func(strategy string) Dialect {
	read := sync.OnceValue(func() map[string]Statements {
		text, _ := files.ReadFile(file) // without it all sections are missing

		statements, err := load[Statements](string(text), mark, numbered, "cas", "insert", "forupdate", "advisory")
		if err != nil {
			panic(fmt.Sprintf("%s: %v", file, err))
		}

		return statements
	})

	return func(strategy string) Dialect {
		of := dialect
		of.Statements = read()[strategy]

		return of
	}
}

// Written is a statement with a value in its text, where it has no argument: a server may bind none there.
func Written(statement databases.Statement, value any) databases.Statement {
	if len(statement.Args) == 0 {
		statement.SQL = fmt.Sprintf(statement.SQL, value)
	}

	return statement
}
