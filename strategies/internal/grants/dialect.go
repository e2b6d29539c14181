package grants

import (
	"slices"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// Dialect is all that one family of servers has of its own: what it is sent, and
// what is to be known of its answers. There are [Postgres], [MySQL], [TiDB] and
// [SQLite]. One that is like another is derived from that, by [Dialect.With],
// and states its differences, as TiDB:
//
//	var Cockroach = Postgres.With("cockroach", func(d *Dialect) {
//		d.Telling = nil // it has no NOTIFY
//	})
//
// Then it goes into dialects. What a strategy has per dialect is in a [Table], in
// which a derived one needs an entry only where it differs there.
type Dialect struct {
	// Name is what databases.DB answers.
	Name databases.Dialect

	// InsertID: what a statement has to say is in the insert id of its answer, because
	// none that changes rows returns them. The token is there, zero if the name was not
	// free, and 1 of a release that somebody waits for. Of a batch it does not say
	// enough, so that leases are read besides. Otherwise a row says it.
	InsertID bool
	// Resolution is that of the clock, where it is coarser than a microsecond: it may
	// be late by as much, so that a lease that begins now would end too early.
	Resolution time.Duration
	// FromLine makes of Acquire what is sent for one in line, and takes it out of the line; nil
	// where Leave has to follow. Who is in no line does not pay for it.
	FromLine func(acquire databases.Statement) databases.Statement
	// OneWriter: there is one write lock for all names. A caller that is refused for
	// another's transaction knows nothing of the name.
	OneWriter bool
	// OneByOne: no statement is about several names or waiters but Leave. Waiters of a batch go one after the other in a
	// transaction, and there are no other batches.
	OneByOne bool
	// Telling makes of Release one that also tells the first in line; nil where none does. It
	// costs more, also where nobody waits, as mostly nobody does.
	Telling func(release databases.Statement) databases.Statement
	// WhyReadOnly says what a server that takes no writes may lack; empty where the
	// error says it.
	WhyReadOnly string
	// IdleLimit is a lease as the server's limit on idle sessions has it, never shorter;
	// nil where there are no strategies that hold a session.
	IdleLimit func(lease time.Duration) any
	// Kill puts the id of a session into the text of a statement that ends it; nil where
	// it is bound as "id".
	Kill func(kill databases.Statement, id int64) databases.Statement
	// Call is the statement that calls a process; nil where none can be, or releases and Tell do.
	Call func(process string) databases.Statement

	Statements

	// ancestors are the dialects that it is derived from, the nearest first.
	ancestors []databases.Dialect
}

// Statements are what is sent about a grant that is written down, whatever the strategy.
// Empty ones are not needed.
type Statements struct {
	// Create makes the name's rows, if they are not there. The last of them gives the row its first token, without which
	// nobody is granted it: Removal has the reason. On SQLite the acquisition does both.
	Create []databases.Statement
	// Acquire grants the name if it is free, and draws the token: the last of as
	// many as the request reserves, and about the microsecond of now, so that
	// tokens follow the clock however many are reserved.
	Acquire databases.Statement
	// State reads the name's rows without a lock: see ReadState.
	State databases.Statement
	// Renew, Release and ReleaseLater act on one owner's grant. ReleaseLater
	// keeps the name taken until its minimum hold is over. Release tells the caller whether
	// somebody waits.
	Renew        databases.Statement
	Release      databases.Statement
	ReleaseLater databases.Statement
	// Raise makes the token of an owner's grant as large as another one, unless it is larger, and answers as Acquire
	// does: with the token that the row has then.
	Raise databases.Statement
	// ReleaseTx is the release in a caller's transaction. ReleaseLater is sent there, too. Neither tells anybody: on
	// PostgreSQL a transaction that has notified cannot be prepared, and does not commit if the queue is full.
	ReleaseTx databases.Statement
	// Force ends a grant of the owner that State told, and notes why. One of
	// them changes a row if there was one.
	Force []databases.Statement

	// Guard reads the name's row, if the grant is its latest, and locks it
	// against the next grant until the transaction ends. It returns the token, or
	// zero if the transaction's snapshot is older.
	Guard databases.Statement
	// Date changes the name's row, as an acquisition does, if the grant is its
	// latest: it was handed on, and a snapshot from before that shows by it. None on
	// SQLite, where a transaction cannot write after a snapshot that anything was
	// committed since.
	Date databases.Statement
	// Unguarded returns the name if neither a guard nor an acquisition has its
	// row locked; none on SQLite, whose one write lock does not say of which
	// row.
	Unguarded databases.Statement
	// Holders lists the names that are held or taken, Slots those of one name.
	Holders databases.Statement
	Slots   databases.Statement
	// Expired lists names whose grant expired, and End ends one of them.
	Expired databases.Statement
	End     databases.Statement
	// Idle lists some names that nobody has used for an age, and of which nothing is noted; Forgotten also those whose note
	// is so old. Without Remove they remove these, and return how many.
	Idle      databases.Statement
	Forgotten databases.Statement
	Remove    Removal

	// Shares are about readers.
	Shares Shares

	// Enqueue, Keep, Leave, Stand and Waiters are those of strategies.Queuer; Leave is about
	// several waiters. The last of Enqueue says whether the name is taken; a second one
	// is not sent for who is Behind. EnqueueAll is Enqueue for several, and returns names whose rows
	// say that somebody waits, and whether they are taken; with OneByOne it binds one of them. Dead lists those who did not leave, by process and id:
	// their process ended, or was cut off.
	// EnqueueSlots says in the rows of a name's other slots that somebody waits.
	Enqueue      []databases.Statement
	EnqueueSlots databases.Statement
	EnqueueAll   []databases.Statement
	Keep         databases.Statement
	Leave        databases.Statement
	Stand        databases.Statement
	Waiters      databases.Statement
	Dead         databases.Statement
	// Tell notifies those who are the first in the lines of names that are free, and TellAll all who listen if somebody waits
	// for a name that may be taken still. First lists the processes of those who are the first, for Call.
	Tell    databases.Statement
	TellAll databases.Statement
	First   databases.Statement
	// Notes reads what is kept of a name beside its grants. NoteTick and Ask change that, for one owner and for whoever
	// holds the name. Announce tells all who listen, where that can be. NoteTick is also sent in a
	// caller's transaction, before ReleaseTx.
	Notes    databases.Statement
	NoteTick databases.Statement
	Ask      databases.Statement
	Announce databases.Statement

	// Brief lets what follows on a session wait for a row lock as briefly as the server
	// can, which is a second, and Patient takes that back. PostgreSQL's statements
	// have PostgresBriefly.
	Brief   databases.Statement
	Patient databases.Statement
	// GuardSnapshot and GuardWrite are sent in place of Guard where there are ManyPrimaries: a lock on a row holds on one
	// node only, and of two transactions that changed a row the later one fails to commit. The first returns when the
	// grant began, as the transaction's snapshot has it, and the second changes the row of a grant that began then.
	GuardSnapshot databases.Statement
	GuardWrite    databases.Statement
	// ManyPrimaries returns a setting, and its value, of servers on which each of
	// several nodes grants a session's lock by itself: Galera, and a replication group
	// with several primaries.
	ManyPrimaries databases.Statement
}

// With returns the dialect that is as d but for its name and what change says. d
// stays as it is.
func (d Dialect) With(name databases.Dialect, change func(*Dialect)) Dialect {
	d.ancestors = append([]databases.Dialect{d.Name}, d.ancestors...)
	d.Name = name
	d.Create, d.Force, d.Enqueue = slices.Clone(d.Create), slices.Clone(d.Force), slices.Clone(d.Enqueue)
	change(&d)

	return d
}

// dialects are those that there are.
var dialects = map[databases.Dialect]Dialect{
	Postgres.Name: Postgres,
	MySQL.Name:    MySQL,
	TiDB.Name:     TiDB,
	SQLite.Name:   SQLite,
}

// Table is what a strategy has for each dialect.
type Table[T any] map[databases.Dialect]T

// For returns what the table has for a dialect, or else for the nearest that it is
// derived from.
func (t Table[T]) For(d Dialect) (T, bool) {
	of, ok := t[d.Name]

	for i := 0; !ok && i < len(d.ancestors); i++ {
		of, ok = t[d.ancestors[i]]
	}

	return of, ok
}
