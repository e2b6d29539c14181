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
// A strategy is how the grant is kept: as a status in a row (package cas, the
// one to choose unless there is a reason), as the existence of a row (insert),
// as a row lock of an open transaction (forupdate), or as an advisory lock of a
// session (advisory). All of them behave as described here.
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
// A client can not know at which moment its statement ran, only that it was
// not before it was sent. So a lock is trusted until
//
//	attempt started + lease × (1 − drift) − margin
//
// with a drift of 1 % and a margin of 10 ms unless WithClockMargin says
// otherwise. Elapsed time is the larger of what the monotonic and the wall
// clock say, because the monotonic clock stands still while a machine sleeps.
// Only a renewal that the database confirmed moves the window, again from when
// it was begun. A renewal without an answer, or with an error, moves nothing
// and is tried again.
//
// When the window ends the lock's context is cancelled with a *[LostError] as
// its cause, also if the database or the driver does not answer. The lease in
// the database ends later than that, so the holder is told before anybody else
// can have the lock.
//
// # What is guaranteed
//
//   - At most one unexpired grant of a name (for connection-held strategies see
//     below).
//   - Tokens of a name grow strictly, over release, expiry, crash, rollback,
//     reaping, the removal of rows, and over a fail-over that lost the last
//     commits as long as the new server's clock is not behind the last grant.
//   - A handle touches its own grant only. Renewing or releasing late does
//     nothing to a successor.
//   - An acquisition whose answer was lost is asked for again by the same owner
//     or given back in the background.
//   - After [Lock.Guard] nobody else is granted the lock until the caller's
//     transaction ends, whatever clocks, pauses and networks do.
//   - Waiting holds no database connection in the lease strategies, and one
//     goroutine of a locker at a time asks the database for a name.
//
// # What is not
//
// Between the last look at a lock and the effect of what follows, a process
// can be paused for any time: no lock service can exclude that two holders'
// side effects overlap then. Where that does damage, use Guard, or check the
// token where the effect happens. Without either, use a lock to save work, not
// to protect data.
//
// The database must keep the commits that it acknowledged, and its clock must
// not jump forward by more than [WithLockDelay]. Waiting is first come, first
// served within a locker, and not between processes.
//
// A connection-held lock (forupdate, advisory) ends the instant its database
// session does: killed by an operator, a fail-over, an idle limit. Its holder
// hears of that at the next renewal, within a third of the lease; for so long
// two holders can exist, with different tokens.
//
// # Failure handling
//
//   - The database does not answer: renewals are tried again until the trust
//     window ends; then the lock is lost.
//   - The process dies: the lock is free when its lease ends; a connection-held
//     one as soon as the server sees the connection closed.
//   - The process is paused or cut off past its lease: it finds its context
//     cancelled when it goes on; the next holder has a larger token.
//   - Release gets no answer: it is repeated, then goes on in the background.
//   - An operator uses ForceRelease: the holder's next renewal is refused.
package sqllock
