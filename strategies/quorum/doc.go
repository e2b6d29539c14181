// Package quorum keeps a lock on a majority of several database servers that know nothing of each other, so that it outlasts
// the failure of some of them. It is a strategy that is made of strategies:
//
//	locker, err := sqllock.New(quorum.New(
//		cas.New(postgres.New(first)), cas.New(postgres.New(second)), cas.New(mysql.New(third)),
//	))
//
// The idea is that of Redlock (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), on databases that keep what they
// acknowledged, and with tokens.
//
// # Use a synchronous replica instead, if you can
//
// A PostgreSQL with synchronous replication, or a cluster such as Galera, outlasts the loss of a server too, and package cas
// on it does all that a lock can. A quorum does less (see "What does not hold"). In particular it has no
// [sqllock.Lock.Guard], because a guard is part of a transaction, and a transaction is in one database. Keep
// the lock where the data is, if what it protects is in a database. A quorum is for what is elsewhere, where the servers
// have no replication, are of different kinds, or are not to depend on each other.
//
// # How a name is held
//
// A name is held by whoever has a lease on more than half of the servers: two of three, three of five. Any two majorities
// have a server in common, and that one grants the name to one at a time. Give an odd number: four servers outlast the
// failure of one, as three do, and have more to fail.
//
//   - An acquisition asks all servers at once. While the outcome is open, each has an eighth of the lease to answer, and
//     three seconds at most. Once a majority has granted the name, or can no longer do so, the others get as much time again
//     as that took, and never less than 150 ms (with a lease below 24 s, a 160th of it). So a server that says nothing
//     costs no more.
//   - In a second round each server of the majority is raised to the largest of the tokens that they drew, before the grant
//     is announced. The next majority has one of these servers, so the next token is larger, also where clocks are hours apart.
//   - What a minority granted is given back at once. The core asks again after a random time, which grows while it
//     finds nobody who holds the name: several may each have had a part of the servers.
//   - The trust window begins before the first round. So what the rounds took, and the drift of the clocks, are off the
//     lease, which each server began later.
//   - A renewal is one that a majority confirmed. A lock is lost when so many servers say that it is gone that no majority is
//     left, or when no renewal was confirmed in its trust window.
//   - A server that did not grant the name is asked again for the same owner: soon after the grant, and again after growing
//     pauses, if another's attempt had the name there; and after each renewal, whatever came of that. Where it is granted,
//     all leases are renewed at once and the server gets the token of the whole. It counts from then on, if no other server
//     has lost the grant meanwhile. So a lock outlasts that all servers restart one after the other.
//   - A server that has said that the grant is gone, because it lost its data for example, is asked again after a lease. If
//     another has been granted the name there, it is asked after ten minutes: an administrator, who may have freed it, has
//     as long to go from server to server. If it was freed and nobody has had it since, it is not asked again.
//   - A release goes to all, and is done when a majority is free. What did not answer is settled in the background, and
//     [sqllock.Locker.Close] waits for that, or says that something may be left.
//
// A server of the quorum may be seen in one of these states by its holder: it has not granted the name, or has said that the
// grant is gone; it has granted it; it has released it; or an attempt was given up there and may bring the grant yet.
//
// # What holds
//
// One at a time: at most one trusts a name, as long as each server keeps what it acknowledged and its clock does not jump
// forward.
//
// A lock that is on all servers is not lost while only a minority of them fails. If more fail, it is lost unless they are
// back within two thirds of a lease.
//
// Tokens grow strictly in the order of the grants, whatever the clocks of the servers are, for as long as one server of each two
// majorities keeps its data.
//
// # What does not hold
//
// A server that is restored without its data, or from an old backup, has forgotten who holds what. If it was needed for a
// majority, another can have the name beside its holder until that one's next renewal, a third of the lease later. That is so
// for a lock that had been granted by a bare majority: while others are down, or in the moment after it was contended. Then the
// tokens of the two are as the clocks say: they grow if the clocks of the servers agree, and need not if they do not. Keep a server that lost its
// data away for the longest lease before you let it in again: then no lock is in doubt. Only the tokens of names are,
// until the clocks of the servers are past the largest.
//
// These return ErrUnsupported: [sqllock.Lock.Guard], ReleaseTx, WithMinHold, WithLockDelay, WithPermits, WithShared, WithNames,
// AsynchronousCommit, Mark, Watch, RequestRelease, Recovery, EndRecovery, SetLossless and Waiters. So of package election Run
// works, and Observe and RequestResign do not.
//
// There is no line and there are no notifications: those who wait poll, and are not served in order. So a quorum costs more
// than one server while it is waited for.
//
// # Mixing
//
// All processes have to be given the same servers; their order does not matter. A name that a process locks on one of the
// servers alone, with cas for example, is taken on that server only.
//
// Each strategy must have a database server of its own. Whether it has, cannot be seen: two databases of one server fail
// together.
//
// Migrate each server ("sqllock migrate up --dsn", once for each): one whose tables are missing is like one that is down.
// While a minority is missing, the event Renewed of each lock has an Err that says where and why, and the log says so each minute.
// [sqllock.Status].Detail says "held on 2 of 3 servers". Locks that end before their first renewal tell nothing, so watch
// each server yourself, too, for example with "sqllock doctor --dsn" from cron.
//
// [sqllock.Status]: https://pkg.go.dev/github.com/sqllock/sqllock/sqllock#Status
// [sqllock.Lock.Guard]: https://pkg.go.dev/github.com/sqllock/sqllock/sqllock#Lock.Guard
// [sqllock.Locker.Close]: https://pkg.go.dev/github.com/sqllock/sqllock/sqllock#Locker.Close
package quorum
