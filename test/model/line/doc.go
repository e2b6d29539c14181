// Package line is a model of the line in which processes wait for a lock, small enough
// to try everything that can happen to it.
//
// Three processes want one name. Each comes, is granted the name or refused, enters
// the line, sleeps until it is told of its turn or looks, asks for the lock, has it,
// and releases it; it may give up, and may come a second time. Statements run one by
// one; between any two anything else may happen. Both variants of the line are here,
// see [Variant]. The holder's lease is in package model; here a holder that lives
// keeps the lock.
//
// [Protocol.Search] visits every state that can be reached, and tells the shortest way
// to a promise that is broken. There is no horizon: a state has ages and not times, so
// that there are finitely many of them. "Mirrors" and [Fault] are as in package model.
//
// # Promises
//
// Whatever the line says, one process holds the lock. It is not granted to one who
// came when another was in line, who waits since. Nobody in line is forgotten when the
// number in the name's row is put back to zero. When nobody waits, two acquisitions on
// put it back. These hold in each state.
//
// Wake-ups are searched twice. In scopes without polls a process looks when it is told
// to, and when it has just entered the line, and at no other time: there nobody may
// sleep while the name is free. In those with polls, processes die or stand still, and
// calls are lost. There a name may be free for as long as the entry of a dead process
// counts and the next one's look may take: five ticks. With four the search finds a
// way that takes longer.
//
// # Bounds
//
// A tick is a second, and has no parts: what is to be done at once is done before the
// next one. Three processes, because what is promised is about a holder, one who waits
// and one who comes after; in some scopes only two of them come, and one of these
// comes twice. Of crashes and stops there is one in a run.
//
// # What is not promised
//
// The scopes from [Slower] on are ways to break a promise that the protocol does not
// close. Each is short, for a look follows: docs/guarantees.md says that order is
// about fairness. A test shows each of them; who closes one makes that test fail, and
// takes the scope away. The other scopes leave these ways out.
//
// # What is not modelled
//
// Those far back in a line that stands still, who look less often and are believed for longer. SQLite, which has the statements of [TwoStatements] and in place of calls a look
// after each commit. Answers of the line's statements that are lost, but for those of
// entries; and the database's silence, in which waiters ask without a turn. Forged
// notifications; a turn at which the row is found locked; one that comes later than
// three seconds after its wait was given up. The waits behind another of the same
// process: one that takes over the place of another is the same wait here, with the
// same entry, and only whether a turn is lost is seen, see [Handed]. Deadlocks, and
// tickets that are drawn in another order than the entries become visible. A call that
// looks up the first in line is one step, though it is two statements. Minimum hold and
// lock delay. Names with permits, whose slots share the line.
package line
