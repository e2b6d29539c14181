package sqllock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// Holders lists the locks that are held at this moment in the database, by
// whatever process and strategy, ordered by name, and names that are taken though
// nobody holds them: see [Status.Taken]. It does not ask which are guarded. Errors:
// [ErrInvalidOption] if f.Limit is negative, [ErrInvalidName] if f.Name or f.Prefix is in no name, [ErrClosed]; the database's.
func (l *Locker) Holders(ctx context.Context, f Filter) (listed []Status, err error) {
	err = l.administer(ctx, "list locks", func() error {
		if err := checkFilter("Filter", f.Name, f.Prefix, f.Limit); err != nil {
			return err
		}

		listed, err = l.strategy.List(ctx, f)

		return err
	})

	for i := range listed {
		listed[i] = shown(listed[i])
	}

	return listed, err
}

// checkFilter says what is wrong with a filter: no name has such text, and PostgreSQL would refuse it.
func checkFilter(filter, name, prefix string, limit int) error {
	switch {
	case limit < 0:
		return fmt.Errorf("%w: %s.Limit %d is negative", ErrInvalidOption, filter, limit)
	case !printable(name):
		return fmt.Errorf("%w: %s.Name %q is not UTF-8 or has a NUL byte", ErrInvalidName, filter, name)
	case !printable(prefix):
		return fmt.Errorf("%w: %s.Prefix %q is not UTF-8 or has a NUL byte", ErrInvalidName, filter, prefix)
	default:
		return nil
	}
}

// Waiters lists who waits for locks at this moment, in whatever process, by name and in
// the order of arrival, in which they get the lock. A process is listed once for each name
// that it waits for; it may hold others meanwhile. A goroutine that holds another lock and waits
// behind one of its own process is listed, too, after those in line, once it has waited for a
// quarter of a second. A process that has died is listed for up to three seconds, or 22 if it was far back. Errors:
// [ErrInvalidOption] if f.Limit is negative, [ErrInvalidName] if f.Name or f.Prefix is in no name, [ErrUnsupported] if the strategy does not know,
// [ErrClosed]; the database's.
func (l *Locker) Waiters(ctx context.Context, f WaiterFilter) (listed []Waiter, err error) {
	err = l.administer(ctx, "list waiters", func() error {
		if err := checkFilter("WaiterFilter", f.Name, f.Prefix, f.Limit); err != nil {
			return err
		}

		if l.waiters.queuer == nil {
			return fmt.Errorf("%w by strategy %s on %s", ErrUnsupported, l.features.Strategy, l.features.Database)
		}

		listed, err = l.waiters.queuer.Waiters(ctx, f)
		most := len(listed)

		if slices.ContainsFunc(listed, wants) && most == f.Limit {
			f.Limit = 0 // there may be others
			listed, err = l.waiters.queuer.Waiters(ctx, f)
		}

		listed = slices.DeleteFunc(listed, wants)

		for i := range listed {
			listed[i].Owner = withoutSecret(listed[i].Owner)
		}

		listed = listed[:min(most, len(listed))]

		return err
	})

	setPlaces(listed)

	return listed, err
}

// Inspect returns the status of a name: who holds it, or how long it is taken though
// nobody does, or who had it last and why that ended. A name that was never granted, or
// whose row was reaped, has the token 0. If it has permits, this is about the first;
// [SlotName] names the others, and [Locker.Holders] lists those that are taken. Errors: [ErrInvalidName],
// [ErrClosed]; the database's.
func (l *Locker) Inspect(ctx context.Context, name string) (status Status, err error) {
	name, slot, err := splitSlotName(name)
	if err != nil {
		return status, err
	}

	err = l.administer(ctx, fmt.Sprintf("inspect lock %q", name), func() error {
		status, _, err = l.strategy.Status(ctx, strategies.SlotName(name, slot))

		return err
	})
	if err == nil {
		status.Name = strategies.SlotName(name, slot) // also if there is nothing
		status = shown(status)
	}

	return status, err
}

// shown is a status as users see it: with the slot apart from the name, and without the owner that is the secret of a claim.
func shown(status Status) Status {
	status.Name, status.Slot = strategies.SplitSlot(status.Name)
	status.Owner = withoutSecret(status.Owner)

	return status
}

// withoutSecret is an owner, unless it is the secret of a claim.
func withoutSecret(owner string) string {
	if strings.HasPrefix(owner, strategies.DetachedPrefix) {
		return ""
	}

	return owner
}

// ForceRelease takes a lock away from the holder that was seen: seen is what [Locker.Inspect],
// or [Locker.Holders] returned, and whoever has acquired the name since
// keeps it. Of seen, Name, Slot, Token and Owner count. The holder learns of
// it at its next renewal, with [ReasonForced] and the reason given here, or with [ReasonTakenOver] if another
// has been granted the name by then; until then two may believe that they hold it, and [Lock.Guard] and tokens keep that harmless.
// Its process may also hand it on, for up to 25 milliseconds after the grant. If the
// holder has released it or its lease has expired, this ends the minimum hold or the lock delay that
// keeps the name taken. A shared lock is taken away from all of its readers. The reason loses
// NUL bytes and invalid UTF-8, and is shortened to 247 bytes.
//
// Errors: [ErrNotHeld], the name is free; [ErrChangedHands], with a *[HeldError] that tells who has
// it; a *[HeldError] alone, a transaction has its row locked for a change, which an open
// [Lock.Guard] on PostgreSQL does not; [ErrInvalidOption], the reason is empty; [ErrInvalidName], [ErrClosed]; the database's. With strategy quorum the holder may
// have lost the lock though there is an error, if too few servers answered: call it again.
func (l *Locker) ForceRelease(ctx context.Context, seen Status, reason string) error {
	name, slot := seen.Name, seen.Slot

	err := checkName(name)
	if slot < 0 || slot >= MaxPermits {
		err = errors.Join(err, fmt.Errorf("%w: there is no slot %d, from 0 to %d", ErrInvalidOption, slot, MaxPermits-1))
	}

	if err != nil {
		return err
	}

	return l.administer(ctx, fmt.Sprintf("force release of lock %q", name), func() error {
		reason, err := cleanReason(reason)
		if err != nil {
			return err
		}

		grant := strategies.Status{Name: strategies.SlotName(name, slot), Token: seen.Token, Owner: seen.Owner}
		forced, err := l.strategy.ForceRelease(ctx, grant, reason)
		err = asHeld(name, err)

		switch held := new(HeldError); {
		case errors.As(err, &held) && held.Token != 0 && !grant.Is(held.Token, held.Owner):
			return fmt.Errorf("%w: %w", ErrChangedHands, err)
		case err != nil:
			return err
		case !forced:
			return ErrNotHeld
		}

		l.listener.call(ctx, name)
		l.logger.WarnContext(ctx, "lock released by force", "name", name, "slot", slot, "token", seen.Token, "reason", reason)

		return nil
	})
}

// RequestRelease asks whoever holds a name to release it, and says why. Nobody is forced: a holder that looks at
// [Status.ReleaseRequested], as a leader of package election does, sees it. The request is about the holder of this
// moment; its successor does not see it. The reason is treated as that of [Locker.ForceRelease].
//
// Errors: [ErrNotHeld]; [ErrInvalidOption], the reason is empty; [ErrInvalidName], [ErrUnsupported], [ErrClosed]; the
// database's.
func (l *Locker) RequestRelease(ctx context.Context, name, reason string) error {
	if err := checkName(name); err != nil {
		return err
	}

	return l.administer(ctx, fmt.Sprintf("request release of lock %q", name), func() error {
		noter, err := l.noter()
		if err != nil {
			return err
		}

		reason, err := cleanReason(reason)
		if err != nil {
			return err
		}

		asked, err := noter.Ask(ctx, name, reason)
		if err == nil && !asked {
			err = ErrNotHeld
		}

		return err
	})
}

// cleanReason is what the holder is told.
func cleanReason(reason string) (string, error) {
	reason = cut(strings.ToValidUTF8(strings.ReplaceAll(reason, "\x00", ""), ""), MaxLabelLength-len(forcedPrefix))
	if strings.TrimSpace(reason) == "" {
		return "", fmt.Errorf("%w: the reason is empty", ErrInvalidOption)
	}

	return reason, nil
}

// forcedPrefix is the room that strategies have beside the reason.
const forcedPrefix = "forced: "

// Reap marks expired grants as ended, to keep the tables tidy; acquisitions do not depend
// on it. It removes the rows of names that were not acquired for the retention,
// which is a minute at least and seven days as a rule, also those that the removal in the
// background leaves: see [Tuning]. A name's token grows even over the removal of its
// row. With strategy forupdate it also ends the sessions of holders whose
// lease has expired, where the server has not. Errors: [ErrInvalidOption] if the retention
// is shorter than a minute, [ErrClosed]; the database's.
func (l *Locker) Reap(ctx context.Context, retention time.Duration) (reaped Reaped, err error) {
	err = l.administer(ctx, "reap", func() error {
		if err := checkRetention(retention); err != nil {
			return err
		}

		reaped, err = l.strategy.Reap(ctx, retention)

		return err
	})

	return reaped, err
}

func checkRetention(retention time.Duration) error {
	if retention < time.Minute {
		return fmt.Errorf("%w: the retention of %s is shorter than a minute", ErrInvalidOption, retention)
	}

	return nil
}

// RunReaper reaps repeatedly, with pauses of every, a millisecond at least, and a tenth
// more or less at random, until ctx ends or the locker is closed; then it returns nil. Of a
// locker that was closed before, it returns [ErrClosed]. Errors of the database are logged
// and tried again, but [ErrUnsupported] and [ErrNoSchema] end it. Several processes may run
// it.
func (l *Locker) RunReaper(ctx context.Context, every, retention time.Duration) error {
	err := l.administer(ctx, "reap", func() error {
		if every < time.Millisecond || every > maxLease {
			return fmt.Errorf("%w: the interval %s is not between %s and %s", ErrInvalidOption, every, time.Millisecond, days(maxLease))
		}

		return checkRetention(retention)
	})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.life, cancel)()

	for sleep(ctx, every*7/10+jitter(every*2/5)) {
		reaped, err := l.Reap(ctx, retention)

		switch {
		case errors.Is(err, ErrUnsupported), errors.Is(err, ErrNoSchema):
			return err
		case err != nil && ctx.Err() == nil:
			l.logger.WarnContext(ctx, "reaping failed", "error", err)
		case reaped != Reaped{}:
			l.logger.DebugContext(ctx, "reaped", "expired", reaped.Expired, "removed", reaped.Removed)
		}
	}

	return nil
}

// Recovery is what the database knows of fail-overs. Its fields are those of [strategies.Recovery].
type Recovery = strategies.Recovery

// Recovery says whether nothing is granted yet, because another server has become the primary of the database and may lack what the
// one before has granted, or it has crashed with [Tuning].AsynchronousCommit, and until when: see [ErrRecovering]. Errors: [ErrUnsupported] if the database has no such pauses: SQLite,
// TiDB, and strategy quorum, each of whose servers has its own; [ErrReadOnly] on a replica; [ErrClosed]; the database's.
func (l *Locker) Recovery(ctx context.Context) (recovery Recovery, err error) {
	err = l.recoverer(ctx, "look for a recovery pause", func(r strategies.Recoverer) error {
		recovery, err = r.Recovery(ctx)

		return err
	})

	return recovery, err
}

// EndRecovery ends a recovery pause, and one that would begin because the server has changed, for whoever knows that the server has
// all that was granted: after a planned switchover for example. The reason is recorded: [Recovery]. Errors are those of
// [Locker.Recovery]; [ErrInvalidOption], the reason is empty; [ErrUnreachable] if a transaction has the row locked that says so.
func (l *Locker) EndRecovery(ctx context.Context, reason string) error {
	return l.recoverer(ctx, "end a recovery pause", func(r strategies.Recoverer) error {
		reason, err := cleanReason(reason)
		if err != nil {
			return err
		}

		return r.EndRecovery(ctx, reason)
	})
}

// SetLossless says for all who use the database that its fail-overs lose no commit, so that there are no recovery pauses: the standby
// is synchronous, or the servers share their storage. It ends a pause. False is the default. The reason is recorded: [Recovery]. Errors
// are those of [Locker.EndRecovery].
func (l *Locker) SetLossless(ctx context.Context, lossless bool, reason string) error {
	return l.recoverer(ctx, "say whether fail-overs lose commits", func(r strategies.Recoverer) error {
		reason, err := cleanReason(reason)
		if err != nil {
			return err
		}

		return r.SetLossless(ctx, lossless, reason)
	})
}

// recoverer does something with the strategy, if its database has recovery pauses.
func (l *Locker) recoverer(ctx context.Context, verb string, do func(strategies.Recoverer) error) error {
	return l.administer(ctx, verb, func() error {
		recoverer, ok := l.strategy.(strategies.Recoverer)
		if !ok || !l.features.Recovers {
			return fmt.Errorf("%w by strategy %s on %s, which has none", ErrUnsupported, l.features.Strategy, l.features.Database)
		}

		return do(recoverer)
	})
}

// Ready says whether the locker can be used: nil if it is not closed, and the database answers and has the tables of locks and of readers as
// this version needs them. The other tables are made together with those, and are not looked at. It is for a readiness probe. It reads what is known of a name that nobody can have, in two small statements on one connection
// of the pool at a time, and changes nothing. The answer is of this moment, and takes until ctx ends, 5 seconds at most.
//
// Nil does not say that locks can be acquired: whether the server takes writes, as a standby does not, whether the account may write,
// and whether there is a recovery pause ([ErrRecovering]) is not looked at. Nor are the locks that are held: those have contexts of their own. Do not make a liveness
// probe of it: a restart does not mend the database, and ends the locks of the process.
//
// Errors are those of [Locker.Acquire]: [ErrUnreachable] or [ErrTooManyConnections], with ctx's error if that ended the wait for the
// answer; [ErrNoSchema]; [ErrUnsupported], the server does not suit; [ErrNotAllowed]; [ErrClosed]; the database's.
func (l *Locker) Ready(ctx context.Context) error {
	nobodys := strategies.SlotName("", 1) // a slot of a name that is empty

	return l.administer(ctx, "look whether the database is ready", func() error {
		err := call.Bounded(ctx, attemptTime, func(ctx context.Context) (err error) {
			// Twice: the connection may be one that a restart of the server has ended, and a call that acquires asks again, too.
			for range 2 {
				if _, _, err = l.strategy.Status(ctx, nobodys); err == nil {
					_, err = l.strategy.List(ctx, strategies.Filter{Name: nobodys, Limit: 1})
				}

				if err == nil || isAnswer(err) || ctx.Err() != nil {
					return err
				}
			}

			return err
		})
		if err != nil && ctx.Err() != nil && !errors.Is(err, ErrUnreachable) && !isAnswer(err) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}

		return err
	})
}

// administer makes a call of a locker that is open, and says in its error what the call was for.
func (l *Locker) administer(ctx context.Context, verb string, do func() error) error {
	if err := checkContext(ctx, verb); err != nil {
		return err
	}

	err := ErrClosed
	if l != nil && l.life.Err() == nil {
		err = ownTime(ctx, do())
	}

	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}

	return nil
}

const (
	// watchPoll is how often a name that is watched is looked at, and watchSlow where everybody who announces is heard.
	watchPoll = time.Second
	watchSlow = 5 * time.Second
	// watchPause is the shortest pause between two looks, however much is announced.
	watchPause = 5 * time.Millisecond
)

// Watch yields the status of a name at once, and then whenever somebody else holds it, nobody does any more, or its
// holder was asked to release it, until ctx ends, the locker is closed, or the loop is left. What came and went between
// two looks is not seen. A status of nobody has no Owner, and Held says false.
//
// It looks once a second, or once in five seconds where announcements of others are heard ([Tuning].Announce), and when the
// holder's lease ends. If the database does not answer, Watch yields the error, once, and goes on; the status follows when it
// answers again. [ErrInvalidName], [ErrUnsupported] and [ErrClosed] end it.
func (l *Locker) Watch(ctx context.Context, name string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		w := &watch{locker: l, name: name, wake: make(chan struct{}, 1)}

		err := checkName(name)
		if err == nil {
			err = l.administer(ctx, fmt.Sprintf("watch lock %q", name), func() (err error) {
				w.noter, err = l.noter()

				return err
			})
		}

		if err != nil {
			yield(Status{}, err)

			return
		}

		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(l.life, stop)()

		l.watches.Store(w, nil)
		defer l.watches.Delete(w)

		w.run(ctx, yield)
	}
}

// watch is one call of Watch.
type watch struct {
	locker *Locker
	noter  strategies.Noter
	name   string
	wake   chan struct{}
}

// run looks until ctx ends or yield wants no more.
func (w *watch) run(ctx context.Context, yield func(Status, error) bool) {
	l := w.locker
	l.listener.use(&l.settings, 0, 1)
	defer l.listener.use(&l.settings, 0, -1)

	var (
		shown   *strategies.Notes // that were yielded last; nil if that was an error
		failing bool
	)

	for more := true; more; {
		seen, err := w.look(ctx, shown)
		next := time.Now().Add(w.interval(seen.notes))

		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			shown, failing = &seen.notes, false
			more = !seen.news || yield(seen.status, nil)
		case !failing:
			shown, failing = nil, true
			more = yield(Status{}, fmt.Errorf("watch lock %q: %w", w.name, ownTime(ctx, err)))
		}

		more = more && sleep(ctx, watchPause) && pause(ctx, time.Until(next), w.wake)
	}
}

// sight is what a look finds: the notes, and the status if they are news.
type sight struct {
	notes  strategies.Notes
	news   bool
	status Status
}

const (
	// lookTries is how often a look is made that failed soon: at SERIALIZABLE another's statement is enough.
	lookTries = 5
	failsSoon = 100 * time.Millisecond
)

// look reads the notes, and the status if they differ from those shown.
func (w *watch) look(ctx context.Context, shown *strategies.Notes) (seen sight, err error) {
	for try := range lookTries {
		began := time.Now()

		seen, err = call.Limited(ctx, attemptTime, func(ctx context.Context) (seen sight, err error) {
			if seen.notes, err = w.noter.Notes(ctx, w.name); err != nil {
				return seen, err
			}

			seen.news = shown == nil || seen.notes.Owner != shown.Owner || seen.notes.Asked != shown.Asked
			if seen.news {
				seen.status, err = w.locker.Inspect(ctx, w.name)
			}

			return seen, err
		})
		if err == nil || time.Since(began) > failsSoon || !sleep(ctx, backoff(try, time.Millisecond, firstRetry)) {
			break
		}
	}

	return seen, err
}

// interval is how long after a look that found these notes the next one follows, if nothing is announced.
func (w *watch) interval(notes strategies.Notes) time.Duration {
	interval := watchPoll
	if w.locker.listener.hearing.Load() {
		interval = watchSlow
	}

	if notes.Owner != "" {
		interval = min(interval, notes.Left+time.Millisecond)
	}

	return interval
}
