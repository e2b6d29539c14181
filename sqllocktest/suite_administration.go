package sqllocktest

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func administrationCases() []testCase {
	return []testCase{
		{"features/what is not claimed is refused", nil, featuresRefused},
		{"ready/until it is closed", nil, readyUntilClosed},
		{"inspect/shows the holder", nil, inspectHolder},
		{"inspect/shows nobody", nil, inspectNobody},
		{"held error/shows the holder", leaseOnly, heldErrorHolder},
		{"holders/filter", nil, holdersFilter},
		{"force release/tells the holder why", nil, forceRelease},
		{"force release/tells the renewal why", nil, forceReleaseRenewal},
		{"force release/of nobody", nil, forceReleaseNobody},
		{"force release/odd reasons", nil, forceReleaseReasons},
		{"force release/not of a successor", nil, forceSuccessor},
		{"force release/not of a successor's minimum hold", minHoldOnly, forceSuccessorMinHold},
		{"force release/ends a minimum hold", minHoldOnly, forceMinHold},
		{"force release/ends a lock delay", lockDelayOnly, forceLockDelay},
		{"force release/while the lock changes hands", databaseOnly, forceChangesHands},
		{"force release/while the holder releases it", databaseOnly, forceReleased},
		{"force release/while a minimum hold begins", both(databaseOnly, minHoldOnly), forceMinHoldBegins},
		{"inspect/outlives the lock", nil, lastGrant},
		{"inspect/within a minimum hold", minHoldOnly, lastGrantMinHold},
		{"inspect/within a lock delay", lockDelayOnly, lastGrantLockDelay},
		{"inspect/sees a guard", guardedOnly, lastGrantGuarded},
	}
}

// readyUntilClosed probes while a lock is held, which is not in the way, and changes nothing.
func readyUntilClosed(e *env) {
	lock := e.acquire(e.a)

	if err := errors.Join(e.a.Ready(e.ctx()), e.b.Ready(e.ctx())); err != nil {
		e.Errorf("Ready() = %v, want nil", err)
	}

	e.alive(lock)

	if holders, err := e.b.Holders(e.ctx(), sqllock.Filter{Prefix: e.name}); err != nil || len(holders) != 1 {
		e.Errorf("Holders() = %+v, %v, want the one lock", holders, err)
	}

	e.release(lock)

	if err := e.b.Close(e.ctx()); err != nil {
		e.Errorf("Close() = %v, want nil", err)
	}

	if err := e.b.Ready(e.ctx()); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("Ready() of a closed locker = %v, want ErrClosed", err)
	}
}

// reaperCases run alone.
func reaperCases() []testCase {
	return []testCase{
		{"ends what expired", leaseOnly, reapExpired},
		{"leaves the living alone", nil, reapLiving},
		{"removes what is idle", leaseOnly, reapIdle},
		{"leaves a minimum hold alone", minHoldOnly, reapMinHold},
		{"leaves a tick alone", both(notesOnly, leaseOnly), reapTick},
	}
}

func featuresRefused(e *env) {
	f := e.features

	if f.Strategy == "" || f.Database == "" {
		e.Errorf("Features() = %+v, want the names of strategy and database", f)
	}

	if f != e.Other.Features() {
		e.Errorf("Features() of two instances: %+v and %+v", f, e.Other.Features())
	}

	for option, o := range map[string]struct {
		claimed bool
		option  sqllock.LockOption
	}{
		"WithMinHold":   {f.MinHold, sqllock.WithMinHold(time.Second)},
		"WithLockDelay": {f.LockDelay, sqllock.WithLockDelay(time.Second)},
	} {
		if o.claimed {
			continue
		}

		if _, err := e.a.TryAcquire(e.ctx(), e.name, o.option); !errors.Is(err, sqllock.ErrUnsupported) {
			e.Errorf("TryAcquire(%s) = %v, want ErrUnsupported", option, err)
		}
	}

	if releaseTxOnly(e) == "" {
		return
	}

	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); !e.guards() && !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("Guard() = %v, want ErrUnsupported", err)
	}

	if err := lock.ReleaseTx(e.ctx(), tx.Tx); !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("ReleaseTx() = %v, want ErrUnsupported", err)
	}

	e.rollback(tx)
	e.release(lock)
}

func inspectHolder(e *env) {
	label := `worker "3" 🔒 \ ' %_`
	metadata := map[string]string{"build": "1.2.3", "quote": `"'\`, "emoji": "🔒"}
	lock := e.acquire(e.a, sqllock.WithLabel(label), sqllock.WithMetadata(metadata))

	held, err := e.b.Inspect(e.ctx(), e.name)
	if err != nil {
		e.Fatalf("Inspect() = %v", err)
	}

	host, _ := os.Hostname()

	if held.Name != e.name || held.Token != lock.Token() || held.Owner != lock.Owner() || held.Strategy != e.features.Strategy {
		e.Errorf("Inspect() = name %q, token %d, owner %q, strategy %q, want %q, %d, %q, %q",
			held.Name, held.Token, held.Owner, held.Strategy, e.name, lock.Token(), lock.Owner(), e.features.Strategy)
	}

	if held.Holder.Host != host || held.Holder.PID != os.Getpid() || held.Holder.Label != label {
		e.Errorf("Inspect().Holder = %+v, want host %q, pid %d, label %q", held.Holder, host, os.Getpid(), label)
	}

	var got map[string]string
	if err := json.Unmarshal([]byte(held.Holder.Metadata), &got); err != nil || !reflect.DeepEqual(got, metadata) {
		e.Errorf("Inspect().Holder.Metadata = %q (%v), want the JSON of %v", held.Holder.Metadata, err, metadata)
	}

	if held.HeldFor < 0 || held.HeldFor > e.patience {
		e.Errorf("Inspect().HeldFor = %s, want some moments", held.HeldFor)
	}

	if held.Remaining > lease+resolution || held.Remaining < lease-e.patience {
		e.Errorf("Inspect().Remaining = %s, want about %s", held.Remaining, lease)
	}

	e.release(lock)
}

func inspectNobody(e *env) {
	nobody := func(when string) {
		e.Helper()

		if status, err := e.b.Inspect(e.ctx(), e.name); err != nil || status.Held() || status.HeldFor != 0 {
			e.Errorf("Inspect() %s = %+v, %v, want that nobody holds it", when, status, err)
		}
	}

	nobody("of a new name")

	lock := e.acquireName(e.a, e.name+"/longer")
	nobody("of the beginning of another's name")
	e.release(lock)

	e.release(e.acquire(e.a))
	nobody("after a release")

	if !e.features.ConnectionHeld {
		e.acquire(e.a)
		e.age(2 * lease)
		nobody("after the lease expired")
	}
}

func heldErrorHolder(e *env) {
	lock := e.acquire(e.a, sqllock.WithLabel("the label"))
	held := e.refused(e.b)
	host, _ := os.Hostname()

	if held.Token != lock.Token() || held.Holder.Host != host || held.Holder.PID != os.Getpid() || held.Holder.Label != "the label" {
		e.Errorf("HeldError = token %d, holder %+v, want %d, host %q, pid %d, label %q",
			held.Token, held.Holder, lock.Token(), host, os.Getpid(), "the label")
	}

	if held.Remaining <= 0 || held.Remaining > lease+resolution {
		e.Errorf("HeldError.Remaining = %s, want between 0 and %s", held.Remaining, lease)
	}

	e.release(lock)
}

func holdersFilter(e *env) {
	// What LIKE takes for wildcards or escapes stands for itself.
	prefix := e.name + `%_\'`
	decoys := []string{e.name + `xy\'1`, e.name + `%y\'1`, e.name + `%_'1`, strings.ToLower(prefix) + "1", e.name}
	names := []string{prefix + "B", prefix + "_", prefix + "a"} // in the order of their bytes

	var locks []*sqllock.Lock

	for _, name := range append(append([]string(nil), names...), decoys...) {
		locks = append(locks, e.acquireName(e.a, name))
	}

	for _, test := range []struct {
		filter sqllock.Filter
		want   []string
	}{
		{sqllock.Filter{Prefix: prefix}, names},
		{sqllock.Filter{Prefix: prefix, Limit: 2}, names[:2]},
		{sqllock.Filter{Prefix: prefix, Limit: 10}, names},
		{sqllock.Filter{Prefix: names[2]}, names[2:]},
		{sqllock.Filter{Prefix: prefix + "nothing"}, nil},
	} {
		held, err := e.b.Holders(e.ctx(), test.filter)

		var got []string
		for _, h := range held {
			got = append(got, h.Name)
		}

		if err != nil || !reflect.DeepEqual(got, test.want) {
			e.Errorf("Holders(%+v) = %q, %v, want %q", test.filter, got, err, test.want)
		}
	}

	if all, err := e.b.Holders(e.ctx(), sqllock.Filter{}); err != nil || len(all) < len(locks) {
		e.Errorf("Holders() of all = %d locks, %v, want at least %d", len(all), err, len(locks))
	}

	if _, err := e.b.Holders(e.ctx(), sqllock.Filter{Limit: -1}); !errors.Is(err, sqllock.ErrInvalidOption) {
		e.Errorf("Holders(Limit: -1) = %v, want ErrInvalidOption", err)
	}

	for _, text := range []string{"\x00", "\xff"} {
		if _, err := e.b.Holders(e.ctx(), sqllock.Filter{Prefix: text}); !errors.Is(err, sqllock.ErrInvalidName) {
			e.Errorf("Holders(Prefix: %q) = %v, want ErrInvalidName", text, err)
		}

		if _, err := e.b.Waiters(e.ctx(), sqllock.WaiterFilter{Name: text}); queuesOnly(e) == "" && !errors.Is(err, sqllock.ErrInvalidName) {
			e.Errorf("Waiters(Name: %q) = %v, want ErrInvalidName", text, err)
		}
	}

	for _, lock := range locks {
		e.release(lock)
	}
}

func forceRelease(e *env) {
	const reason = "the node burns; see ticket 'OPS-1'"

	first := e.acquire(e.a)

	if err := ForceRelease(e.ctx(), e.b, e.name, reason); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	if lost := e.lost("Check() after ForceRelease", first.Check(e.ctx()), sqllock.ReasonForced); !strings.Contains(lost.Detail, reason) {
		e.Errorf("LostError.Detail = %q, want that it says %q", lost.Detail, reason)
	}

	second := e.acquire(e.b)
	e.grow("a forced release", first.Token(), second.Token())
	e.lost("Release() after ForceRelease", first.Release(e.ctx()))
	e.alive(second)
	e.release(second)
}

func forceReleaseRenewal(e *env) {
	const reason = "no reason needed"

	first := e.acquire(e.a, sqllock.WithLease(6*time.Second))

	if err := ForceRelease(e.ctx(), e.b, e.name, reason); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	e.ended(first, "of ForceRelease")

	if lost := e.lost("Err() after ForceRelease", first.Err(), sqllock.ReasonForced); !strings.Contains(lost.Detail, reason) {
		e.Errorf("LostError.Detail = %q, want that it says %q", lost.Detail, reason)
	}
}

func forceReleaseNobody(e *env) {
	if err := ForceRelease(e.ctx(), e.b, e.name, "test"); !errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("ForceRelease() of a new name = %v, want ErrNotHeld", err)
	}

	e.release(e.acquire(e.a))

	if err := ForceRelease(e.ctx(), e.b, e.name, "test"); !errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("ForceRelease() after a release = %v, want ErrNotHeld", err)
	}
}

func forceReleaseReasons(e *env) {
	for _, reason := range []string{"'\"\\%_🔒", "broken \xff and \x00", strings.Repeat("🔒", 200)} {
		lock := e.acquire(e.a)

		if err := ForceRelease(e.ctx(), e.b, e.name, reason); err != nil {
			e.Errorf("ForceRelease(%q) = %v, want nil", reason, err)
		}

		e.lost("Check() after ForceRelease", lock.Check(e.ctx()), sqllock.ReasonForced)
	}
}

// It takes the lock away from the holder that was looked at, and from nobody else.
func forceSuccessor(e *env) {
	nobody := e.status()
	first := e.acquire(e.a)
	seen := e.status()

	e.spared("a name that nobody had", nobody, first)
	e.release(first)

	second := e.acquire(e.a)
	e.spared("a name that changed hands", seen, second)
	e.release(second)

	if err := e.b.ForceRelease(e.ctx(), seen, "the reason"); !errors.Is(err, sqllock.ErrNotHeld) || errors.Is(err, sqllock.ErrChangedHands) {
		e.Errorf("ForceRelease() after both were released = %v, want ErrNotHeld", err)
	}
}

// spared fails unless a forced release of what was seen leaves a later lock alone, and says whose it is.
func (e *env) spared(what string, seen sqllock.Status, lock *sqllock.Lock) {
	e.Helper()

	err := e.b.ForceRelease(e.ctx(), seen, "the reason")

	var held *sqllock.HeldError

	switch {
	case !errors.Is(err, sqllock.ErrChangedHands) || !errors.As(err, &held):
		e.Errorf("ForceRelease() of %s = %v, want ErrChangedHands and a *HeldError", what, err)
	case held.Token != lock.Token() || held.Holder.PID != os.Getpid():
		e.Errorf("ForceRelease() of %s = %v, with token %d, want the successor's, %d", what, err, held.Token, lock.Token())
	}

	e.alive(lock)
}

func forceSuccessorMinHold(e *env) {
	e.release(e.acquire(e.a))
	seen := e.status()
	lock := e.acquire(e.a, sqllock.WithMinHold(lease), sqllock.WithLabel("the label"))
	e.release(lock)

	if err := e.b.ForceRelease(e.ctx(), seen, "the reason"); !errors.Is(err, sqllock.ErrChangedHands) {
		e.Errorf("ForceRelease() within a successor's minimum hold = %v, want ErrChangedHands", err)
	}

	e.listedAsTaken(lock.Token())
}

// A job failed, and its name is to be had at once.
func forceMinHold(e *env) {
	lock := e.acquire(e.a, sqllock.WithMinHold(lease), sqllock.WithLabel("the label"))
	e.release(lock)
	e.listedAsTaken(lock.Token())

	if err := ForceRelease(e.ctx(), e.b, e.name, "the job failed"); err != nil {
		e.Fatalf("ForceRelease() within a minimum hold = %v, want nil", err)
	}

	if status := e.status(); status.Taken != 0 || status.Ended != "" {
		e.Errorf("Inspect() after ForceRelease = %+v, want it not taken, and its own release as its end", status)
	}

	e.release(lock) // Its answer may have been lost; it was released all the same.

	next := e.acquire(e.b)
	e.grow("a forced end of a minimum hold", lock.Token(), next.Token())
	e.release(next)
}

func forceLockDelay(e *env) {
	lock := e.acquire(e.a, sqllock.WithLockDelay(lease), sqllock.WithLabel("the label"))
	e.age(lease + 10*time.Second)
	e.listedAsTaken(lock.Token())

	if err := ForceRelease(e.ctx(), e.b, e.name, "the reason"); err != nil {
		e.Fatalf("ForceRelease() within a lock delay = %v, want nil", err)
	}

	e.lost("Check() after ForceRelease", lock.Check(e.ctx()), sqllock.ReasonForced)

	next := e.acquire(e.b)
	e.grow("a forced end of a lock delay", lock.Token(), next.Token())
	e.release(next)
}

// databaseOnly is for cases that stop a statement that only a database has.
func databaseOnly(e *env) string {
	if e.Faulty == nil {
		return "there is no database beneath"
	}

	return ""
}

// forceBeside runs a case with a force of what is seen then, which has looked and changed nothing yet when
// it calls meanwhile: right after its look, and right before the change.
func (e *env) forceBeside(run func(force func(meanwhile func()) error)) {
	for _, stop := range []struct {
		statement string
		when      When
	}{{"state", After}, {"force", Before}} {
		run(func(meanwhile func()) error {
			seen := e.status()
			forced := make(chan error, 1)

			reached, resume := e.script.Pause(stop.statement, stop.when)
			defer resume()

			go func() { forced <- e.a.ForceRelease(e.ctx(), seen, "the reason") }()

			e.reach(reached, stop.statement)
			meanwhile()
			resume()

			return <-forced
		})
	}
}

// The force saw one holder, and finds the next.
func forceChangesHands(e *env) {
	e.forceBeside(func(force func(func()) error) {
		lock := e.acquire(e.b)

		err := force(func() {
			e.release(lock)
			lock = e.acquire(e.b)
		})

		var held *sqllock.HeldError
		if !errors.Is(err, sqllock.ErrChangedHands) || !errors.As(err, &held) || held.Token != lock.Token() {
			e.Errorf("ForceRelease() of a name that changed hands = %v, want ErrChangedHands with token %d", err, lock.Token())
		}

		e.alive(lock)
		e.release(lock)
	})
}

func forceReleased(e *env) {
	e.forceBeside(func(force func(func()) error) {
		lock := e.acquire(e.b)

		if err := force(func() { e.release(lock) }); !errors.Is(err, sqllock.ErrNotHeld) {
			e.Errorf("ForceRelease() of a name that was released meanwhile = %v, want ErrNotHeld", err)
		}
	})
}

func forceMinHoldBegins(e *env) {
	e.forceBeside(func(force func(func()) error) {
		lock := e.acquire(e.b, sqllock.WithMinHold(lease))

		if err := force(func() { e.release(lock) }); err != nil {
			e.Errorf("ForceRelease() of a name whose minimum hold began meanwhile = %v, want nil", err)
		}

		if status := e.status(); status.Taken != 0 || status.Ended != "" {
			e.Errorf("Inspect() after ForceRelease = %+v, want it not taken, and its own release as its end", status)
		}
	})
}

// listedAsTaken fails unless the case's name is told as one that nobody holds, and
// nobody gets.
func (e *env) listedAsTaken(token int64) {
	e.Helper()

	e.refused(e.b)

	status := e.status()
	held, err := e.b.Inspect(e.ctx(), e.name)

	if err != nil || held.Token != token || held.Holder.Label != "the label" || held.Remaining != 0 || held.Taken <= 0 || held.Taken > lease {
		e.Errorf("Inspect() = %+v, %v, want token %d, its label, no time left, and it taken for at most %s", held, err, token, lease)
	}

	if status.Remaining != 0 || status.Token != token || (status.Taken-held.Taken).Abs() > e.patience {
		e.Errorf("Inspect() = %+v, want as Inspect() = %+v", status, held)
	}
}

func reapMinHold(e *env) {
	lock := e.acquire(e.a, sqllock.WithMinHold(lease))
	e.release(lock)

	if _, err := e.b.Reap(e.ctx(), 7*24*time.Hour); err != nil {
		e.Errorf("Reap() = %v, want nil", err)
	}

	e.refused(e.b)
	e.age(2 * lease)

	if _, err := e.b.Reap(e.ctx(), 7*24*time.Hour); err != nil {
		e.Errorf("Reap() = %v, want nil", err)
	}

	if status := e.status(); status.Ended != "" {
		e.Errorf("Inspect() after a minimum hold that was reaped = %+v, want its own release as its end", status)
	}
}

func reapExpired(e *env) {
	first := e.acquire(e.a)
	e.age(2 * lease)

	reaped, err := e.b.Reap(e.ctx(), 7*24*time.Hour)
	if err != nil || reaped.Expired < 1 {
		e.Errorf("Reap() = %+v, %v, want at least one expired", reaped, err)
	}

	e.lost("Check() of a reaped lock", first.Check(e.ctx()), sqllock.ReasonExpired, sqllock.ReasonForced)
	e.lost("Release() of a reaped lock", first.Release(e.ctx()))

	second := e.acquire(e.b)
	e.grow("a reaping", first.Token(), second.Token())
	e.release(second)
}

func reapLiving(e *env) {
	lock := e.acquire(e.a)

	for range 2 {
		if _, err := e.b.Reap(e.ctx(), 7*24*time.Hour); err != nil {
			e.Errorf("Reap() = %v, want nil", err)
		}
	}

	e.alive(lock)
	e.refused(e.b)

	if err := lock.Extend(e.ctx(), lease); err != nil {
		e.Errorf("Extend() after Reap = %v, want nil", err)
	}

	e.release(lock)
}

func reapIdle(e *env) {
	const retention = time.Hour

	first := e.acquire(e.a)
	e.age(2 * retention)

	removed := 0

	for range 2 { // The first may only end the grant.
		reaped, err := e.Strategy.Reap(e.ctx(), retention)
		if err != nil {
			e.Fatalf("Reap(%s) = %v, want nil", retention, err)
		}

		removed += reaped.Removed
	}

	if removed < 1 {
		e.Errorf("Reap(%s) removed %d names, want at least one", retention, removed)
	}

	e.lost("Check() after the row was removed", first.Check(e.ctx()))

	second := e.acquire(e.b)
	e.grow("the removal of the row", first.Token(), second.Token())
	e.release(second)
}

func lastGrant(e *env) {
	if status, err := e.b.Inspect(e.ctx(), e.name); err != nil || status != (sqllock.Status{Name: e.name}) {
		e.Errorf("Inspect() of a new name = %+v, %v, want nothing but its name", status, err)
	}

	lock := e.acquire(e.a, sqllock.WithLabel("the label"))

	if status := e.status(); status.Token != lock.Token() || status.Holder.Label != "the label" || status.Remaining <= 0 || status.Ended != "" {
		e.Errorf("Inspect() of a held lock = %+v, want token %d, its label, some time, and no end", status, lock.Token())
	}

	e.release(lock)

	if status := e.status(); status.Token != lock.Token() || status.Remaining != 0 || status.Taken != 0 || status.Ended != "" {
		e.Errorf("Inspect() after a release = %+v, want token %d, no time, and no reason", status, lock.Token())
	}

	forced := e.acquire(e.a)

	if err := ForceRelease(e.ctx(), e.b, e.name, "the reason"); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	if status := e.status(); status.Token != forced.Token() || status.Remaining != 0 || status.Ended != sqllock.ReasonForced || status.Detail != "the reason" {
		e.Errorf("Inspect() after a forced release = %+v, want token %d, no time, and the reason", status, forced.Token())
	}
}

func lastGrantMinHold(e *env) {
	const least = 10 * time.Second

	lock := e.acquire(e.a, sqllock.WithMinHold(least))

	if status := e.status(); status.Taken != 0 {
		e.Errorf("Inspect() of a held lock = %+v, want it not taken besides", status)
	}

	e.release(lock)

	if status := e.status(); status.Token != lock.Token() || status.Remaining != 0 || status.Taken <= 0 || status.Taken > least {
		e.Errorf("Inspect() within a minimum hold = %+v, want token %d, no holder, and it taken for at most %s", status, lock.Token(), least)
	}

	e.age(2 * least)

	if status := e.status(); status.Taken != 0 {
		e.Errorf("Inspect() after a minimum hold = %+v, want it not taken", status)
	}
}

func lastGrantLockDelay(e *env) {
	lock := e.acquire(e.a, sqllock.WithLockDelay(lease))
	e.age(lease + 10*time.Second)

	if status := e.status(); status.Token != lock.Token() || status.Remaining != 0 || status.Taken <= 0 || status.Taken > lease {
		e.Errorf("Inspect() within a lock delay = %+v, want token %d, no holder, and it taken for at most %s", status, lock.Token(), lease)
	}

	e.age(lease)

	if status := e.status(); status.Taken != 0 {
		e.Errorf("Inspect() after a lock delay = %+v, want it not taken", status)
	}
}

func lastGrantGuarded(e *env) {
	lock := e.acquire(e.a)
	tx := e.begin("")

	if err := lock.Guard(e.ctx(), tx.Tx); err != nil {
		e.Fatalf("Guard() = %v, want nil", err)
	}

	// One writer: what has the lock of the file is not known there.
	want := !e.harness.GuardBlocksRenewal

	if status := e.status(); status.Guarded != want {
		e.Errorf("Inspect().Guarded beside a guard = %t, want %t", status.Guarded, want)
	}

	e.commit(tx)
	// A renewal may have the row for a moment.
	e.poll("Inspect() after the guard's end", func() error {
		if e.status().Guarded {
			return errors.New("it is guarded still")
		}

		return nil
	})
	e.release(lock)
}

// status asks for the status of the case's name, as another process would.
func (e *env) status() sqllock.Status {
	e.Helper()

	status, err := e.b.Inspect(e.ctx(), e.name)
	if err != nil {
		e.Fatalf("Inspect() = %v, want nil", err)
	}

	return status
}
