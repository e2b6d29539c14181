package failover_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/test/servers"
)

const (
	// enoughFailOvers of each database, unless the environment says how many.
	enoughFailOvers = 4
	// longestLease is that of the locks that survive, and none is longer, until a fail-over has shown that it needs more.
	longestLease  = 5 * time.Second
	shortestLease = 2 * time.Second
	rivalLease    = shortestLease
	// outlasts is how many fail-overs a lease is long that is to outlast one: a third of it may be over when the primary ends, and
	// whoever has it needs some of the rest to renew it.
	outlasts = 3
	// pace is how often a rival asks, at most: it pauses as long as a try took, lest many of them keep a slow machine busy.
	pace = 100 * time.Millisecond
	// shown is how many second holders of a mode are told of one by one.
	shown = 2
	// twice is in which rounds the promoted standby ends, too, while locks are trusted that the first primary granted: in
	// each of so many.
	twice = 3
)

// TestLostGrants fails over again and again to a standby that lags. The primary has acknowledged grants that the
// standby never heard of, and whoever has them trusts them: nobody else may be granted those names before that ends.
// SQLLOCK_TEST_FAILOVERS says how often, for each database.
func TestLostGrants(t *testing.T) {
	t.Parallel()

	times := howOften(t)

	var (
		mutex sync.Mutex
		table = heading()
	)

	t.Cleanup(func() { t.Log("\n" + table) })

	for _, database := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()

			f := newFleet(t, database, times, startReplicated(t, database, servers.Asynchronous))
			f.crew(t)

			// Also if a round ends the test.
			defer func() {
				f.report(t)
				f.reportSome(t)

				mutex.Lock()
				defer mutex.Unlock()

				table += f.witness.table(database)
			}()

			for number := 1; f.failOvers < times; number++ {
				f.round(t, number)
			}
		})
	}
}

func howOften(t *testing.T) int {
	t.Helper()

	given := os.Getenv("SQLLOCK_TEST_FAILOVERS")
	if given == "" {
		return enoughFailOvers
	}

	times, err := strconv.Atoi(given)
	if err != nil || times < 1 {
		t.Fatalf("SQLLOCK_TEST_FAILOVERS=%q, want a number", given)
	}

	return times
}

// round is a fail-over, or two at once.
func (f *fleet) round(t *testing.T, number int) {
	t.Helper()

	began := time.Now()
	again := number%twice == 0

	if again {
		do(t, "start the next standby", f.Prepare)

		// The promoted standby ends, too, while the grants of the first primary are trusted. What was prepared need not be waited for.
		f.longest = max(f.longest, f.losing+2*f.failOver+(f.followed-time.Since(began))*5/4)
	}

	for _, m := range f.teams {
		for _, k := range m.kept {
			m.hold(t, k, f.longest)
		}
	}

	do(t, "catch up", f.CaughtUp)
	do(t, "cut the link", f.Cut)

	losing := time.Now()
	lost := f.loseAll(t, number)
	f.losing = time.Since(losing)

	// All get the lock sooner or later. How soon is not what is tested.
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience+2*(f.longest+f.followed))

	var rivals, others sync.WaitGroup

	defer others.Wait()
	defer rivals.Wait()
	defer cancel()

	for _, l := range lost {
		if !l.renewed && l.permits == 0 {
			rivals.Go(func() { l.team.wait(ctx, t, l.lostLock) })
		}
	}

	f.endPrimary(t, number)

	for _, l := range lost {
		for range l.many() {
			rivals.Go(func() { l.team.try(ctx, t, l.lostLock) })
		}
	}

	for _, m := range f.teams {
		for _, k := range m.kept {
			others.Go(func() { m.tryKept(ctx, t, k) })
		}
	}

	if again {
		f.succeed(t)
		f.endPrimary(t, number)
		t.Logf("round %d: both took %s, and the longest lease %s", number, time.Since(losing).Round(time.Millisecond), f.longest.Round(time.Millisecond))
	}

	promoted := time.Now()

	for _, l := range lost {
		rivals.Go(func() { l.team.wantTold(t, l.lostLock, f.longest) })
	}

	if f.failOvers < f.times {
		f.succeed(t)
	}

	rivals.Wait()
	t.Logf("round %d took %s: after the promotion all had had their turn within %s", number,
		time.Since(began).Round(time.Millisecond), time.Since(promoted).Round(time.Millisecond))

	// A machine that is as slow as this one shows more in the next round.
	f.longest = max(f.longest, outlasts*f.failOver)

	for _, m := range f.teams {
		for _, k := range m.kept {
			m.wantKept(k)
		}
	}
}

// endPrimary ends the primary, and has all find the standby where it was.
func (f *fleet) endPrimary(t *testing.T, number int) {
	t.Helper()

	f.failOvers++

	began := time.Now()
	do(t, "crash", f.Crash)
	do(t, "promote", f.Promote)
	f.address.move(f.where(t, f.StandbyDSN()))

	for _, m := range f.teams {
		for _, k := range m.kept {
			m.witness.count(k.mode, func(c *count) { c.failOvers++ })
		}
	}

	took := time.Since(began)
	f.failOver = max(f.failOver, took)
	t.Logf("round %d: crash and promotion took %s", number, took.Round(time.Millisecond))
}

// succeed has a new standby follow the promoted one.
func (f *fleet) succeed(t *testing.T) {
	t.Helper()

	began := time.Now()
	do(t, "follow the promoted standby", f.Succeed)
	f.followed = time.Since(began)
	t.Logf("a new standby followed the promoted one %s later", f.followed.Round(time.Millisecond))
}

// losing is a lock of a team.
type losing struct {
	*lostLock
	team *team
}

// loseAll acquires what will be lost: of each kind a name that had been granted before and one that had not, of which one
// is renewed.
func (f *fleet) loseAll(t *testing.T, number int) (all []losing) {
	t.Helper()

	for _, m := range f.teams {
		for _, w := range m.wants {
			for i, name := range []string{"known", fmt.Sprintf("new/%d", number)} {
				for range w.many() {
					all = append(all, losing{&lostLock{
						want: w, mode: m.Name + " " + w.kind, name: m.Name + "/" + name + "/" + w.kind,
						renewed: (number+i)%2 == 0 && !w.durable,
					}, m})
				}
			}
		}
	}

	var acquiring sync.WaitGroup

	// What had been granted before is not lost, either.
	for _, durable := range []bool{true, false} {
		for _, l := range all {
			if l.durable == durable {
				acquiring.Go(func() { l.team.lose(t, l.lostLock, f.longest) })
			}
		}

		acquiring.Wait()
	}

	if t.Failed() {
		t.FailNow() // and do not wait for what was not granted
	}

	return all
}

// report fails for what must not be.
func (f *fleet) report(t *testing.T) {
	t.Helper()

	for _, fault := range f.witness.faults {
		t.Error(fault)
	}

	if sum := f.witness.sum(); sum.seconds > 0 {
		t.Errorf("%d second holders in %d fail-overs, want none", sum.seconds, f.failOvers)
	}
}

// reportSome fails if nothing was shown of those who lose a lock, or of those who keep one.
func (f *fleet) reportSome(t *testing.T) {
	t.Helper()

	// On a machine that has much else to do some leases end before anybody is told.
	if sum := f.witness.sum(); sum.told == 0 || sum.kept == 0 {
		t.Errorf("%d holders were told of a loss, and %d locks were kept, want some of both", sum.told, sum.kept)
	}
}
