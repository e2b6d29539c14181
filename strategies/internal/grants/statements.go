package grants

import "github.com/sqllock/sqllock/databases"

// Statements are what a dialect is sent, from the sections of its file that the tags name. Empty ones are not needed there. A
// strategy has the sections that the tag of its name says, where there are such.
type Statements struct {
	// Create makes the name's rows, if they are not there. The last of them gives the row its first token, without which
	// nobody is granted it: Removal has the reason. On SQLite the acquisition does both.
	Create []databases.Statement `sql:"grant.create,grant.create-lease,grant.ready"`
	// Acquire grants the name if it is free, and draws the token: the last of as
	// many as the request reserves, and about the microsecond of now, so that
	// tokens follow the clock however many are reserved.
	// The second one is for who is in line, and takes it out of the line where the dialect LeavesLine.
	//
	// cas has the same under a name of its own: if the two texts came to differ, they would not exclude each other. Those of insert
	// see to its row, too. That of forupdate grants the name only while the session lives whose lock is bound as "held".
	Acquire []databases.Statement `sql:"grant.acquire,grant.acquire from line" cas:"cas.acquire,cas.acquire from line" insert:"insert.acquire,insert.acquire from line" forupdate:"grant.acquire held,grant.acquire held from line"`
	// State reads the name's rows without a lock: see ReadState.
	State databases.Statement `sql:"grant.state"`
	// Renew, Release and ReleaseLater act on one owner's grant. ReleaseLater
	// keeps the name taken until its minimum hold is over. Release tells the caller whether
	// somebody waits.
	Renew        databases.Statement `sql:"grant.renew"`
	Release      databases.Statement `sql:"grant.release" insert:"grant.release insert"`
	ReleaseLater databases.Statement `sql:"grant.release-later" insert:"grant.release-later insert"`
	// ReleaseTelling also tells the first in line, where a statement can. It costs more, also where nobody waits, as mostly
	// nobody does.
	ReleaseTelling databases.Statement `sql:"grant.release telling" insert:"grant.release telling insert"`
	// BeforeRelease is sent before each release, where a strategy keeps a row beside the record that the release leaves alone.
	BeforeRelease []databases.Statement `insert:"insert.gone"`
	// Raise makes the token of an owner's grant as large as another one, unless it is larger, and answers as Acquire
	// does: with the token that the row has then.
	Raise databases.Statement `sql:"grant.raise"`
	// Pass has a grant go over to another owner, and answers as Acquire does. PassRow follows it for what a strategy keeps beside.
	Pass    databases.Statement   `sql:"grant.pass"`
	PassRow []databases.Statement `insert:"insert.pass"`
	// ReleaseTx is the release in a caller's transaction. ReleaseLater is sent there, too. Neither tells anybody: on
	// PostgreSQL a transaction that has notified cannot be prepared, and does not commit if the queue is full.
	ReleaseTx databases.Statement `sql:"grant.release-tx" insert:"grant.release-tx insert"`
	// Force ends a grant of the owner that State told, and notes why. One of
	// them changes a row if there was one. It takes along what strategies keep besides.
	Force []databases.Statement `sql:"grant.force,grant.force-lease,insert.gone"`

	// Guard reads the name's row, if the grant is its latest, and locks it
	// against the next grant until the transaction ends. It returns the token, or
	// zero if the transaction's snapshot is older.
	Guard databases.Statement `sql:"grant.guard"`
	// Date changes the name's row, as an acquisition does, if the grant is its
	// latest: it was handed on, and a snapshot from before that shows by it.
	Date databases.Statement `sql:"grant.date"`
	// Unguarded returns the name if neither a guard nor an acquisition has its
	// row locked.
	Unguarded databases.Statement `sql:"grant.unguarded"`
	// Holders lists the names that are held or taken, Slots those of one name.
	Holders databases.Statement `sql:"grant.holders"`
	Slots   databases.Statement `sql:"grant.slots"`
	// Expired lists by name and owner grants that expired, and End ends that of a name.
	Expired databases.Statement `sql:"grant.expired"`
	End     databases.Statement `sql:"grant.end"`
	// Idle lists some names that nobody has used for an age, and of which nothing is noted; Forgotten also those whose note
	// is so old. Without Remove they remove these, and return how many.
	Idle      databases.Statement `sql:"grant.idle"`
	Forgotten databases.Statement `sql:"grant.forgotten"`
	Remove    Removal             `sql:"remove"`
	// StaleRows lists rows that strategies keep beside the record, by name and owner, whose owner no longer has the name, and
	// ClearRow deletes one. They are cleared by whatever strategy: the one that left a row may not be in use any more.
	StaleRows databases.Statement `sql:"insert.stale"`
	ClearRow  databases.Statement `sql:"insert.clear-stale"`

	// Recovery is about fail-overs.
	Recovery Recovery `sql:"recovery"`

	// Shares are about readers.
	Shares Shares

	// Enqueue, Keep, Leave, Stand and Waiters are those of strategies.Queuer; Leave is about
	// several waiters. The last of Enqueue says whether the name is taken; a second one
	// is not sent for who is Behind. EnqueueAll is Enqueue for several, and returns names whose rows
	// say that somebody waits, and whether they are taken; EnqueueEach does so for one after the other. Dead lists those
	// who did not leave, by process and id: their process ended, or was cut off.
	// EnqueueSlots says in the rows of a name's other slots that somebody waits.
	Enqueue      []databases.Statement `sql:"queue.enqueue,queue.wait"`
	EnqueueSlots databases.Statement   `sql:"queue.enqueue-slots"`
	EnqueueAll   []databases.Statement `sql:"queue.enqueue-all,queue.wait-all,queue.taken-all"`
	EnqueueEach  []databases.Statement `sql:"queue.enqueue-each,queue.wait-each,queue.taken-each"`
	Keep         databases.Statement   `sql:"queue.keep"`
	Leave        databases.Statement   `sql:"queue.leave"`
	Stand        databases.Statement   `sql:"queue.stand"`
	StandKeeping databases.Statement   `sql:"queue.stand keeping"`
	Waiters      databases.Statement   `sql:"queue.waiters"`
	Dead         databases.Statement   `sql:"queue.dead"`
	// Tell notifies those who are the first in the lines of names that are free, and TellAll all who listen if somebody waits
	// for a name that may be taken still. First lists the processes of those who are the first, and Call calls one, which
	// is Written.
	Tell    databases.Statement `sql:"queue.tell"`
	TellAll databases.Statement `sql:"queue.tell-all"`
	First   databases.Statement `sql:"queue.first"`
	Call    databases.Statement `sql:"queue.call"`
	// Notes reads what is kept of a name beside its grants. Mark and Ask change that, for one owner and for whoever
	// holds the name. Announce tells all who listen, where that can be. Mark is also sent in a
	// caller's transaction, before ReleaseTx.
	Notes    databases.Statement `sql:"notes.read"`
	Mark     databases.Statement `sql:"notes.mark"`
	Ask      databases.Statement `sql:"notes.ask"`
	Announce databases.Statement `sql:"notes.announce"`

	// Where tells which tables a session finds, if any, whether those are still there that were found first, as whom the session acts, and
	// whether it finds some of the tables elsewhere than others.
	Where databases.Statement `sql:"grant.where"`

	// Protocol returns which one a program has to speak that uses the tables.
	Protocol databases.Statement `sql:"grant.protocol"`

	// Brief lets what follows on a session wait for a row lock as briefly as the server
	// can, which is a second, and Patient takes that back.
	Brief   databases.Statement `sql:"grant.brief"`
	Patient databases.Statement `sql:"grant.patient"`
	// GuardSnapshot and GuardWrite are sent in place of Guard where there are ManyPrimaries: a lock on a row holds on one
	// node only, and of two transactions that changed a row the later one fails to commit. The first returns when the
	// grant began, as the transaction's snapshot has it, and the second changes the row of a grant that began then.
	GuardSnapshot databases.Statement `sql:"grant.guard-snapshot"`
	GuardWrite    databases.Statement `sql:"grant.guard-write"`
	// ManyPrimaries returns a setting, and its value, of servers on which each of
	// several nodes grants a session's lock by itself: Galera, and a replication group
	// with several primaries.
	ManyPrimaries databases.Statement `sql:"grant.many-primaries"`

	// Begin, Commit and Rollback are of a transaction of several statements.
	Begin    databases.Statement `sql:"group.begin"`
	Commit   databases.Statement `sql:"group.commit" insert:"insert.commit"`
	Rollback databases.Statement `sql:"group.rollback" insert:"insert.rollback"`

	Batch Batch `sql:"batch"`
	Rows  Rows

	Insert    Insert
	ForUpdate ForUpdate `sql:"forupdate"`
	Advisory  Advisory  `sql:"advisory"`
}

// Batch are the statements about many grants at a time. None of them waits for
// a row that somebody else has locked: that grant is dealt with alone.
//
// They bind an array for each column ("each_name" and so on, PostgreSQL), or
// "calls", a JSON array of objects, and once what those leave out: see columns.
type Batch struct {
	// Create makes the names' rows, if they are not there, and the last gives them their first tokens. All bind the same.
	Create []databases.Statement `sql:"grant.create-all,grant.create-all-leases,grant.ready-all"`
	// Acquire grants the names that are free. It returns the owner and the token of
	// each grant, and nothing where the dialect has WithoutReturning.
	Acquire databases.Statement `sql:"grant.acquire-all" insert:"insert.acquire-all"`
	// State is that for one name with the name before its columns.
	State databases.Statement `sql:"grant.state-all" insert:"insert.look-all"`
	// Renew and Release act on each owner's grant. They return the owners, and whether
	// somebody waits. With WithoutReturning they return nothing: Leases reads
	// owner and end of the owners' leases, and the insert id of Renew's
	// answer is the clock that it renewed by. ReleaseQuietly tells nobody.
	Renew          databases.Statement `sql:"grant.renew-all"`
	Release        databases.Statement `sql:"grant.release-all" insert:"insert.release-all"`
	ReleaseQuietly databases.Statement `sql:"grant.release-all quietly" insert:"insert.release-all quietly"`
	Leases         databases.Statement `sql:"grant.leases-all"`
}

// Rows are the statements about rows that insert keeps beside the records of many grants, where the statements about those do
// not see to them.
type Rows struct {
	// Begin is of one transaction with what changes the records. If it is empty each statement commits by itself; then State
	// has the owner of the row, empty if there is none, after the name.
	Begin []databases.Statement `insert:"insert.begin"`
	// Make makes the rows of the owners that have the records.
	Make databases.Statement `insert:"insert.insert-all"`
	// Delete deletes the rows of the owners, before their records are freed; in steps, of those that have the records.
	Delete databases.Statement `insert:"insert.gone-all"`
}

// Insert are the statements of strategy insert about the row beside the record, where Acquire does not see to it.
type Insert struct {
	// Look reads the owner of the name's row, empty if there is none, and its
	// state. Clear deletes a row whose owner no longer has the name. Make makes the
	// row for the owner of the record.
	Look  databases.Statement `sql:"insert.look"`
	Clear databases.Statement `sql:"insert.clear"`
	Make  databases.Statement `sql:"insert.insert"`
}

// ForUpdate are the statements of strategy forupdate: what is sent on the connection that holds the lock, and about it. The
// lease is written down beside it on another connection: a token drawn in the transaction that holds the lock would be
// rolled back by a crash, and given out again.
type ForUpdate struct {
	// Create makes the row to lock, on another connection: FOR UPDATE of a
	// row that is not there locks nothing and is no error.
	Exists databases.Statement `sql:"forupdate.exists"`
	Create databases.Statement `sql:"forupdate.create"`
	// Begin opens the transaction, which uses sqllock_mutexes and no other table:
	// until it ends it keeps others from changing what it has used. Lock takes the
	// row, and returns what the server knows the lock by, or nothing if another session has it; LockShared beside others
	// who do so. Locked are sent behind. Limit lets
	// the server end the session when nothing was heard from it for so long: the
	// lease, enforced by the server; sending it again is the heartbeat. Either Begin or Lock does so, too. A limit that is
	// not bound is Written.
	Begin      []databases.Statement `sql:"forupdate.isolate,forupdate.begin,forupdate.renew begin"`
	Limit      databases.Statement   `sql:"forupdate.renew"`
	Lock       databases.Statement   `sql:"forupdate.lock"`
	LockShared databases.Statement   `sql:"forupdate.lock-shared"`
	Locked     []databases.Statement `sql:"forupdate.renew locked"`
	// End frees the row, and leaves the session as it was found.
	End []databases.Statement `sql:"forupdate.release,forupdate.unmark,forupdate.reset"`
	// Sessions finds sessions of holders whose lease expired, Session that of
	// one owner, and Kill ends one.
	Sessions databases.Statement `sql:"forupdate.sessions"`
	Session  databases.Statement `sql:"forupdate.session"`
	Kill     databases.Statement `sql:"forupdate.kill"`
}

// Advisory are the statements of strategy advisory, which are sent on the session that holds the locks. The lease is
// written down beside them, on the same session; each commits by itself.
type Advisory struct {
	// Identity tells the server's session, to see through a proxy that gives
	// one session to many clients.
	Identity databases.Statement `sql:"advisory.identity"`
	// Namespace tells the database, or the table, that names belong to: advisory
	// locks know neither. It also returns the session's id, as Session has it.
	Namespace databases.Statement `sql:"advisory.namespace"`
	// Limit lets the server end the session when nothing was heard from it for
	// so long: the lease, enforced by the server. Whatever is sent on the session is
	// the heartbeat. Reset takes it back.
	Limit databases.Statement `sql:"advisory.limit"`
	Reset databases.Statement `sql:"advisory.reset"`
	// TryShared takes the lock beside others who do so, and returns whether the session got it, and whether the server is
	// read-only: a replica grants too, and that is no lock. It is empty where there is no such lock.
	TryShared databases.Statement `sql:"advisory.try-shared"`
	// Unlock returns whether the session had the lock.
	Unlock       databases.Statement `sql:"advisory.release unlock"`
	UnlockShared databases.Statement `sql:"advisory.release-shared"`
	// Acquire takes the lock and grants the name in one, and Release ends the grant and frees the lock. They are about one
	// request, the -All about many, and Look asks what became of those: see lookKeyed.
	Acquire         databases.Statement `sql:"advisory.acquire"`
	AcquireFromLine databases.Statement `sql:"advisory.acquire from line"`
	AcquireAll      databases.Statement `sql:"advisory.acquire-all"`
	Release         databases.Statement `sql:"advisory.release"`
	ReleaseAll      databases.Statement `sql:"advisory.release-all"`
	Look            databases.Statement `sql:"advisory.look"`
	// UnlockLeft unlocks those of some keys that the session has, if any, and returns for each whether it has it no more.
	UnlockLeft databases.Statement `sql:"advisory.release-left"`
	// State reads the name's rows, behind whether the server is read-only; empty where Acquire has refused that.
	State databases.Statement `sql:"advisory.state"`
	// Ping only asks.
	Ping databases.Statement `sql:"advisory.check"`
	// Session finds the session that has a lock, and Kill ends it.
	Session databases.Statement `sql:"advisory.session"`
	Kill    databases.Statement `sql:"advisory.kill"`
}
