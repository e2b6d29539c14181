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
// The database grants a name to one owner at a time, which is one acquisition. A grant has a
// token, larger than that of every earlier grant of the name, and a lease: how long it lasts
// without a renewal, by the database's clock. A strategy keeps it: cas, unless there is a reason for another.
//
// # What is guaranteed
//
//   - A name has at most one unexpired grant, and tokens grow strictly, over crashes and reaping,
//     too. With [WithPermits] that is true of each slot of a name; with [WithShared] its readers have one grant together.
//   - A lost lock stays lost. Its context ends, with a *[LostError] as the cause, before others can have it, unless it is taken by
//     force: at attempt started + lease × (1 − drift) − margin. Only a confirmed renewal moves the start.
//   - [ErrNotAcquired] means that somebody has the lock; a database that does not answer is [ErrUnreachable].
//   - What an attempt without an answer left is released in the background. [Locker.Close] leaves nothing, or says what.
//   - After [Lock.Guard] nobody else is granted the lock until the caller's transaction ends.
//   - Waiting is first come, first served, also between processes.
//
// # What is not
//
// Between the last look at a lock and the effect of what follows, a process can be paused for any length of time. Where that does
// damage, use [Lock.Guard], or check the token where the effect happens. The database must keep the
// commits that it acknowledged. Only a fail-over may lose some: after it nothing is granted for the longest lease
// ([ErrRecovering]). The server's clock must not jump forward by more than [WithLockDelay]. A lock of
// forupdate or advisory ends with its session: until its holder learns of that at the next renewal, there can be two.
//
// All promises, and what happens when something fails: https://github.com/sqllock/sqllock/blob/main/docs/guarantees.md
package sqllock
