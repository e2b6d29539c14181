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
		{"inspect/shows the holder", administerOnly, inspectHolder},
		{"inspect/shows nobody", administerOnly, inspectNobody},
		{"held error/shows the holder", leaseOnly, heldErrorHolder},
		{"holders/filter", administerOnly, holdersFilter},
		{"force release/tells the holder why", administerOnly, forceRelease},
		{"force release/tells the renewal why", administerOnly, forceReleaseRenewal},
		{"force release/of nobody", administerOnly, forceReleaseNobody},
		{"force release/odd reasons", administerOnly, forceReleaseReasons},
		{"last grant/outlives the lock", administerOnly, lastGrant},
		{"last grant/within a minimum hold", both(administerOnly, minHoldOnly), lastGrantMinHold},
		{"last grant/within a lock delay", both(administerOnly, lockDelayOnly), lastGrantLockDelay},
		{"last grant/sees a guard", both(administerOnly, guardOnly), lastGrantGuarded},
	}
}

// reaperCases run alone.
func reaperCases() []testCase {
	return []testCase{
		{"ends what ran out", both(leaseOnly, administerOnly), reapExpired},
		{"leaves the living alone", administerOnly, reapLiving},
		{"removes what is idle", both(leaseOnly, administerOnly), reapIdle},
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

	if _, ok := e.Strategy.(sqllock.Administrator); f.Administer && !ok {
		e.Errorf("Features claim Administer, and %T is no Administrator", e.Strategy)
	}

	if _, ok := e.Strategy.(sqllock.Historian); f.Administer && !ok {
		e.Errorf("Features claim Administer, and %T is no Historian", e.Strategy)
	}

	for option, o := range map[string]struct {
		claimed bool
		option  sqllock.Option
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

	if !f.Administer {
		if _, err := e.a.Inspect(e.ctx(), e.name); !errors.Is(err, sqllock.ErrUnsupported) {
			e.Errorf("Inspect() = %v, want ErrUnsupported", err)
		}
	}

	lock := e.acquire(e.a)

	if err := lock.Guard(e.ctx(), foreignTx{}); !f.Guard && !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("Guard() = %v, want ErrUnsupported", err)
	}

	if err := lock.ReleaseTx(e.ctx(), foreignTx{}); !f.ReleaseTx && !errors.Is(err, sqllock.ErrUnsupported) {
		e.Errorf("ReleaseTx() = %v, want ErrUnsupported", err)
	}

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

	if held.Remaining > lease || held.Remaining < lease-e.patience {
		e.Errorf("Inspect().Remaining = %s, want about %s", held.Remaining, lease)
	}

	e.release(lock)
}

func inspectNobody(e *env) {
	nobody := func(when string) {
		e.Helper()

		if held, err := e.b.Inspect(e.ctx(), e.name); !errors.Is(err, sqllock.ErrNotHeld) {
			e.Errorf("Inspect() %s = %+v, %v, want ErrNotHeld", when, held, err)
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
		nobody("after the lease ran out")
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

	if held.Remaining <= 0 || held.Remaining > lease {
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

	for _, lock := range locks {
		e.release(lock)
	}
}

func forceRelease(e *env) {
	const reason = "the node burns; see ticket 'OPS-1'"

	first := e.acquire(e.a)

	if err := e.b.ForceRelease(e.ctx(), e.name, reason); err != nil {
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

	if err := e.b.ForceRelease(e.ctx(), e.name, reason); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	e.ended(first, "of ForceRelease")

	if lost := e.lost("Err() after ForceRelease", first.Err(), sqllock.ReasonForced); !strings.Contains(lost.Detail, reason) {
		e.Errorf("LostError.Detail = %q, want that it says %q", lost.Detail, reason)
	}
}

func forceReleaseNobody(e *env) {
	if err := e.b.ForceRelease(e.ctx(), e.name, "test"); !errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("ForceRelease() of a new name = %v, want ErrNotHeld", err)
	}

	e.release(e.acquire(e.a))

	if err := e.b.ForceRelease(e.ctx(), e.name, "test"); !errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("ForceRelease() after a release = %v, want ErrNotHeld", err)
	}
}

func forceReleaseReasons(e *env) {
	for _, reason := range []string{"", "'\"\\%_🔒", "broken \xff and \x00", strings.Repeat("🔒", 200)} {
		lock := e.acquire(e.a)

		if err := e.b.ForceRelease(e.ctx(), e.name, reason); err != nil {
			e.Errorf("ForceRelease(%q) = %v, want nil", reason, err)
		}

		e.lost("Check() after ForceRelease", lock.Check(e.ctx()), sqllock.ReasonForced)
	}
}

func reapExpired(e *env) {
	first := e.acquire(e.a)
	e.age(2 * lease)

	reaped, err := e.b.Reap(e.ctx())
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
		if _, err := e.b.Reap(e.ctx()); err != nil {
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

	admin, ok := e.Strategy.(sqllock.Administrator)
	if !ok {
		e.Fatalf("Features claim Administer, and %T is no Administrator", e.Strategy)
	}

	first := e.acquire(e.a)
	e.age(2 * retention)

	removed := 0

	for range 2 { // The first may only end the grant.
		reaped, err := admin.Reap(e.ctx(), retention)
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
	if _, err := e.b.LastGrant(e.ctx(), e.name); !errors.Is(err, sqllock.ErrNotHeld) {
		e.Errorf("LastGrant() of a new name = %v, want ErrNotHeld", err)
	}

	lock := e.acquire(e.a, sqllock.WithLabel("the label"))

	if last := e.last(); last.Token != lock.Token() || last.Holder.Label != "the label" || last.Remaining <= 0 || last.Ended != "" {
		e.Errorf("LastGrant() of a held lock = %+v, want token %d, its label, some time, and no end", last, lock.Token())
	}

	e.release(lock)

	if last := e.last(); last.Token != lock.Token() || last.Remaining != 0 || last.Taken != 0 || last.Ended != "" {
		e.Errorf("LastGrant() after a release = %+v, want token %d, no time, and no reason", last, lock.Token())
	}

	forced := e.acquire(e.a)

	if err := e.b.ForceRelease(e.ctx(), e.name, "the reason"); err != nil {
		e.Fatalf("ForceRelease() = %v, want nil", err)
	}

	if last := e.last(); last.Token != forced.Token() || last.Remaining != 0 || last.Ended != sqllock.ReasonForced || last.Detail != "the reason" {
		e.Errorf("LastGrant() after a forced release = %+v, want token %d, no time, and the reason", last, forced.Token())
	}
}

func lastGrantMinHold(e *env) {
	const least = 10 * time.Second

	lock := e.acquire(e.a, sqllock.WithMinHold(least))

	if last := e.last(); last.Taken != 0 {
		e.Errorf("LastGrant() of a held lock = %+v, want it not taken besides", last)
	}

	e.release(lock)

	if last := e.last(); last.Token != lock.Token() || last.Remaining != 0 || last.Taken <= 0 || last.Taken > least {
		e.Errorf("LastGrant() within a minimum hold = %+v, want token %d, no holder, and it taken for at most %s", last, lock.Token(), least)
	}

	e.age(2 * least)

	if last := e.last(); last.Taken != 0 {
		e.Errorf("LastGrant() after a minimum hold = %+v, want it not taken", last)
	}
}

func lastGrantLockDelay(e *env) {
	lock := e.acquire(e.a, sqllock.WithLockDelay(lease))
	e.age(lease + 10*time.Second)

	if last := e.last(); last.Token != lock.Token() || last.Remaining != 0 || last.Taken <= 0 || last.Taken > lease {
		e.Errorf("LastGrant() within a lock delay = %+v, want token %d, no holder, and it taken for at most %s", last, lock.Token(), lease)
	}

	e.age(lease)

	if last := e.last(); last.Taken != 0 {
		e.Errorf("LastGrant() after a lock delay = %+v, want it not taken", last)
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

	if last := e.last(); last.Guarded != want {
		e.Errorf("LastGrant().Guarded beside a guard = %t, want %t", last.Guarded, want)
	}

	e.commit(tx)
	// A renewal may have the row for a moment.
	e.poll("LastGrant() after the guard's end", func() error {
		if e.last().Guarded {
			return errors.New("it is guarded still")
		}

		return nil
	})
	e.release(lock)
}

// last asks for the latest grant, as another process would.
func (e *env) last() sqllock.LastGrant {
	e.Helper()

	last, err := e.b.LastGrant(e.ctx(), e.name)
	if err != nil {
		e.Fatalf("LastGrant() = %v, want nil", err)
	}

	return last
}
