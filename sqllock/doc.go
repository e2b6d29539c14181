// Package sqllock provides locks between processes that share nothing but a
// SQL database: a nightly job once in the cluster, one worker for each
// customer, one writer for a document.
//
//	locker, err := sqllock.New(cas.New(postgres.New(pool)))
//	...
//	err = locker.Do(ctx, "invoices/2026-11", func(ctx context.Context, lock *sqllock.Lock) error {
//		tx, err := pool.Begin(ctx)
//		...
//		if err := lock.Guard(ctx, postgres.Tx(tx)); err != nil {
//			return err
//		}
//		return tx.Commit(ctx)
//	})
//
// # Model
//
// A lock has a name. The database grants a name to one owner at a time; an
// owner is a random number made for one acquisition. A grant carries a token,
// an int64 that is larger than that of every earlier grant of the name, and a
// lease: how long the grant lasts without a renewal, by the database's clock.
//
// With [WithPermits] several hold a name at a time. It has that many slots then, and
// what is said here of a name is true of each slot. With [WithShared] any number of readers have a
// name together, under one token. With [WithNames] a lock has several names: all of them or none.
//
// A strategy is how the grant is kept: as a status in a row (package cas, the
// one to choose unless there is a reason for another), as the existence of a
// row (insert), as a row lock of an open transaction (forupdate), or as an
// advisory lock of a session (advisory). All of them behave as described here.
// Their contract with this package is in package strategies, which only authors
// of a strategy need.
//
// # States of a handle
//
//	          Acquire                     Release, Close
//	(nothing) ───────▶ held ─────────────────────────────▶ released
//	                    │
//	                    │ trust window over · renewal refused · forced
//	                    ▼
//	                   lost ── Release returns the loss, once lost always lost
//
// # Trust window
//
// A client cannot know at which moment its statement ran, only that it ran no
// earlier than it was sent. So a lock is trusted until
//
//	attempt started + lease × (1 − drift) − margin
//
// with a drift of 1 % and a margin of 10 ms unless [Tuning] says
// otherwise. Elapsed time is the larger of what the monotonic and the wall
// clock say, because the monotonic clock stands still while a machine sleeps.
// Only a renewal that the database confirmed moves the window, again counted
// from the start of the renewal. A renewal that fails or gets no answer moves
// nothing and is tried again.
//
// When the window ends, the lock's context is cancelled with a *[LostError] as
// its cause, even if the database or the driver does not answer. The lease in
// the database ends later than that, so the holder learns of the loss before
// anybody else can have the lock.
//
// # What is guaranteed
//
//   - A name has at most one unexpired grant, that of one holder or of its readers
//     (for connection-held strategies see below).
//   - The tokens of a name grow strictly, across releases, expiry, crashes,
//     rollbacks, reaping and the removal of rows. They also grow across a
//     fail-over that lost the last commits, as long as the new server's clock is
//     not behind the last grant.
//   - A handle touches its own grant only. Renewing or releasing late does
//     nothing to a successor.
//   - If the answer to an acquisition is lost, the same owner asks again, or what
//     it may have acquired is released in the background. [Locker.Close] leaves
//     nothing behind, or says what it may have left.
//   - [ErrNotAcquired] means that somebody has the lock. A database that does not
//     answer is [ErrUnreachable].
//   - After [Lock.Guard] nobody else is granted the lock until the caller's
//     transaction ends, whatever clocks, pauses and networks do.
//   - With [WithShared] a name has any number of readers, or one writer. The token of readers is larger than that of every
//     writer before them, and smaller than that of every writer after them.
//   - Waiting is first come, first served, also between processes. However many
//     wait, a locker uses at most one database connection to hear of releases, and
//     it stands in line once for all its goroutines that want the same of a name: to write, to read, or one of its permits.
//
// # What is not
//
// Between the last look at a lock and the effect of what follows, a process
// can be paused for any length of time. No lock service can rule out that the
// side effects of two holders overlap then. Where that does damage, use [Lock.Guard],
// or check the token where the effect happens. Without either, use a lock to
// save work, not to protect data.
//
// The database must keep the commits that it acknowledged, and its clock must
// not jump forward by more than [WithLockDelay]. Waiters are served in the
// order of arrival, but not strictly: a database that does not answer can break it.
//
// A connection-held lock (forupdate, advisory) ends the instant its database
// session does: killed by an operator, a fail-over, an idle limit. Its holder
// learns of that at the next renewal, within a third of the lease. Until then
// two holders can exist, with different tokens.
//
// # Failure handling
//
//   - The database does not answer, restarts or fails over: renewals are tried
//     again until the trust window ends; then the lock is lost. Whoever waits for
//     a lock goes on waiting. [Locker.TryAcquire] fails within five seconds.
//   - The process dies: the lock is free when its lease ends; a connection-held
//     one is free as soon as the server sees the connection closed.
//   - The process is paused or cut off past its lease: it finds its context
//     cancelled when it resumes; the next holder has a larger token.
//   - [Lock.Release] gets no answer: it is repeated, then goes on in the background.
//   - An operator uses [Locker.ForceRelease]: the holder's next renewal is refused.
//
// # Tuning
//
// Most programs need no more than [WithLease] and, for a job, [WithMinHold]. [WithTuning]
// changes what is fast and what is sent, never what is promised.
package sqllock
