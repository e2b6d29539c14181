// Package model is the lease protocol of sqllock, small enough to try everything
// that can happen to it.
//
// Two clients want one name. Their statements run at the database one by one, by
// its clock; between any two steps anything else may happen: time passes, a
// request or an answer is lost, a statement runs late, after its caller gave up
// or died, a client's clock is slow, a process is paused or crashes, the reaper
// comes, the database goes on without its last commits. [Protocol.Search] visits every
// state that can be reached and checks the promises of docs/guarantees.md in each. It
// goes by distance, so the way to a broken promise that it tells is a shortest one.
//
// A function says in its comment, after "Mirrors", what it stands for in the
// code; a test looks whether that is still there. A [Fault] is a mistake built
// in: the search must find each of them, which shows that it can see.
//
// # Bounds
//
// A lease is three ticks: one for the drift of the clocks, one to hold, one in
// which to renew. Time ends with the fourth or fifth tick: enough for a grant in tick 0, its
// expiry in tick 3, or in tick 4 after a renewal in tick 1, for the take-over, and
// for what comes late to that. Two clients, because every promise is about a holder
// and one other. One or two acquisitions each, and one or two statements that come
// late: the shortest way to any of the faults needs no more. A [Scope] has some of
// the things that can happen and not all, so what needs rare events of different
// scopes together is not seen.
//
// # Commits that are lost
//
// A database goes on without its last commits if a standby that lags is promoted, or if
// it crashes and comes back without grants that did not wait for its disk. Then it
// grants nothing until the longest lease that it may have granted has passed: a pause.
// That takes a row that says whose it is, and how long the longest lease may be.
//
// The search shows what the pause needs. In the pause, who asks again for what it has is
// told so only if its lease has not expired, and an expired lease is not renewed: what
// another was granted afterwards may be lost. And that the longest lease was raised must
// not be lost with the grant that needs it: on a primary whose standby lags, a commit
// alone does not see to that.
//
// # What is not modelled
//
// Waiting, and who is next: package line is a model of that. In neither are lock delay,
// minimum hold and reentrancy; ForceRelease, after which two may trust a lock, as
// documented, and the loss of one; a clock of the database that is set, or a standby's
// that differs; guards where commits are lost; the strategies that hold a connection. A
// statement is one step, though on MySQL an acquisition by strategy insert is three. On
// SQLite a guard also stops renewals and releases; here it does not.
package model
