package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// answered is a strategy that does something while the answer to an attempt is on
// its way.
type answered struct {
	*sqllocktest.Memory

	during func()
}

func (a *answered) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := a.Memory.Acquire(ctx, requests)

	if during := a.during; during != nil {
		a.during = nil

		during()
	}

	return grants, errs
}

// The release is told of before the one who begins to wait could hear it, since
// the database knew already that somebody of this process waits.
func TestReleaseWhileOneBeginsToWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		strategy := &answered{Memory: sqllocktest.NewMemory()}
		other := newLocker(t, strategy.Peer())
		locker := newLocker(t, strategy, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))

		// So that it listens, and has said so.
		held := acquire(t, other)
		locks := make(chan *sqllock.Lock, 1)

		go func() { locks <- acquire(t, locker) }()

		time.Sleep(6 * time.Second)
		release(t, held)
		release(t, <-locks)

		held = acquire(t, other)
		strategy.during = func() {
			release(t, held)
			time.Sleep(time.Millisecond)
		}

		started := time.Now()
		release(t, acquire(t, locker))

		if waited := time.Since(started); waited > 100*time.Millisecond {
			t.Errorf("the lock was had %s after its release, want less than 100ms", waited)
		}
	})
}

// deaf has a first call that goes to a connection that was cut off.
type deaf struct {
	*sqllocktest.Memory

	operation string
	calls     atomic.Int64
}

func (d *deaf) hang(ctx context.Context, operation string) error {
	if operation != d.operation || d.calls.Add(1) > 1 {
		return nil
	}

	<-ctx.Done()

	return ctx.Err()
}

func (d *deaf) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if err := d.hang(ctx, "acquire"); err != nil {
		return make([]strategies.Grant, len(requests)), slices.Repeat([]error{err}, len(requests))
	}

	return d.Memory.Acquire(ctx, requests)
}

func (d *deaf) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	if err := d.hang(ctx, "enqueue"); err != nil {
		return make([]bool, len(all)), slices.Repeat([]error{err}, len(all))
	}

	return d.Memory.Enqueue(ctx, all, ttl)
}

// A long lease is no reason to wait for as long.
func TestLongLeaseOnADeadConnection(t *testing.T) {
	t.Parallel()

	for _, operation := range []string{"acquire", "enqueue"} {
		t.Run(operation, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				strategy := &deaf{Memory: sqllocktest.NewMemory(), operation: operation}
				held := acquire(t, newLocker(t, strategy.Peer()))
				locker := newLocker(t, strategy, sqllock.WithLease(24*time.Hour), sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))

				go func() {
					time.Sleep(time.Second)
					release(t, held)
				}()

				started := time.Now()
				release(t, acquire(t, locker))

				if waited := time.Since(started); waited > 12*time.Second {
					t.Errorf("the lock was had after %s, want at most the 10s of one attempt and a pause", waited)
				}
			})
		})
	}
}

// stuck has four calls that do not return, also when their contexts have ended.
type stuck struct {
	*sqllocktest.Memory

	calls atomic.Int64
	end   chan struct{}
}

const stuckCalls = 4

func (s *stuck) hang() error {
	if s.calls.Add(1) > stuckCalls {
		return nil
	}

	<-s.end

	return errors.New("cut off")
}

func (s *stuck) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	if err := s.hang(); err != nil {
		return make([]strategies.Grant, len(requests)), slices.Repeat([]error{err}, len(requests))
	}

	return s.Memory.Acquire(ctx, requests)
}

// Statements that hang keep others waiting for a moment, whether those who sent
// them still wait or not.
func TestHungAttemptsDoNotStopOthers(t *testing.T) {
	t.Parallel()

	for what, after := range map[string]time.Duration{"just sent": 0, "given up": time.Minute} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				strategy := &stuck{Memory: sqllocktest.NewMemory(), end: make(chan struct{})}
				defer close(strategy.end)

				locker := newLocker(t, strategy)

				for i := range stuckCalls {
					go func() { _, _ = locker.TryAcquire(t.Context(), fmt.Sprint(i)) }()

					time.Sleep(20 * time.Millisecond)
				}

				time.Sleep(after)

				started := time.Now()
				release(t, acquire(t, locker))

				if waited := time.Since(started); waited > 2*time.Second {
					t.Errorf("the lock of another name was had after %s, want at most 2s", waited)
				}
			})
		})
	}
}

// slow is a strategy behind a network, where nobody is told of releases.
type slow struct{ *sqllocktest.Memory }

const trip = 400 * time.Microsecond

func (s slow) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	time.Sleep(trip)

	return s.Memory.Acquire(ctx, requests)
}

func (slow) Call(context.Context, []string) error { return nil }

func (slow) Listen(context.Context, string, func(), func(string, string, int64), func(string, bool)) error {
	return sqllock.ErrUnsupported
}

// Who takes the lock again as soon as it was released is as polite as if somebody
// of its process had waited: otherwise the name is free for less than the others'
// pauses, for ever.
func TestComingBackAtOnceLetsOthersGoFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const (
			waits = 20
			hold  = time.Second
		)

		memory := sqllocktest.NewMemory()
		looper := newLocker(t, slow{memory}, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
		other := newLocker(t, slow{memory.Peer()}, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
		ctx, stop := context.WithCancel(t.Context())

		var (
			had  atomic.Int64
			done = make(chan struct{})
		)

		go func() {
			defer close(done)

			for ctx.Err() == nil {
				lock := acquire(t, looper)

				had.Add(1)
				time.Sleep(hold)
				release(t, lock)
			}
		}()

		missed := int64(0)

		for range waits {
			time.Sleep(3 * hold / 2)

			before := had.Load()
			release(t, acquire(t, other))

			missed += had.Load() - before
		}

		stop()
		<-done

		if missed > 20*waits {
			t.Errorf("in a wait another had the lock %d times, want at most 20", missed/waits)
		}
	})
}

// Who has no time to let others go first asks at once.
func TestShortWaitOnACrowdedName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		other := newLocker(t, memory.Peer())
		lock := acquire(t, locker)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)

		defer cancel()

		if _, err := other.Acquire(ctx, name); !errors.Is(err, sqllock.ErrNotAcquired) {
			t.Fatalf("Acquire() of a held lock = %v, want ErrNotAcquired", err)
		}

		// The database tells the one who releases that somebody waited.
		release(t, lock)
		release(t, acquire(t, locker, sqllock.WithMaxWait(4*time.Millisecond)))
	})
}

// gossip is a strategy on whose database anybody can tell of releases.
type gossip struct {
	*sqllocktest.Memory

	told chan func(name, id string, line int64)
}

func (g *gossip) Listen(ctx context.Context, process string, ready func(), turn func(name, id string, line int64), look func(name string, released bool)) error {
	g.told <- turn

	return g.Memory.Listen(ctx, process, ready, turn, look)
}

// Whoever may connect to the database can tell of releases that there were not.
// That costs little, and what is true is heard as before when he has stopped, and
// soon while he goes on.
func TestForgedReleases(t *testing.T) {
	t.Parallel()

	for _, goesOn := range []bool{false, true} {
		t.Run(fmt.Sprintf("goes on %t", goesOn), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const (
					forged = 2000
					most   = 30 // attempts: ten at first, then one in a second
				)

				strategy := &gossip{sqllocktest.NewMemory(), make(chan func(string, string, int64), 1)}
				held := acquire(t, newLocker(t, strategy.Peer()))
				locker := newLocker(t, strategy, sqllock.WithTuning(sqllock.Tuning{NoBatching: true}))
				locks := make(chan *sqllock.Lock, 1)

				go func() { locks <- acquire(t, locker) }()

				tell := <-strategy.told

				time.Sleep(time.Second)

				before := strategy.Count("acquire")

				// Who may read the table, too, knows the id.
				waiters, err := strategy.Waiters(t.Context(), strategies.WaiterFilter{Name: name})
				if err != nil || len(waiters) != 1 {
					t.Fatalf("Waiters() = %v, %v, want one", waiters, err)
				}

				for range forged {
					tell(name, waiters[0].ID, 0)
					time.Sleep(5 * time.Millisecond)
				}

				if got := strategy.Count("acquire") - before; got > most {
					t.Errorf("%d forged releases cost %d attempts, want at most %d", forged, got, most)
				}

				soon := 1100 * time.Millisecond

				if !goesOn {
					soon = 10 * time.Millisecond

					time.Sleep(7 * time.Second) // at the latest after the next poll
				}

				released := time.Now()
				release(t, held)

				for goesOn && len(locks) == 0 && time.Since(released) < time.Minute {
					tell(name, waiters[0].ID, 0)
					time.Sleep(5 * time.Millisecond)
				}

				lock := <-locks

				if took := time.Since(released); took > soon {
					t.Errorf("the lock was had %s after its release, want at most %s", took, soon)
				}

				release(t, lock)
			})
		})
	}
}

// Nobody holds the name that a transaction guards. Others of this process hear that from
// the one that asks.
func TestTryBesideAWaiterOfAGuardedName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		tx := memory.Begin()
		lock := acquire(t, locker)

		if err := lock.Guard(t.Context(), tx); err != nil {
			t.Fatalf("Guard() = %v, want nil", err)
		}

		release(t, lock)

		waited := make(chan *sqllock.Lock, 1)

		go func() { waited <- acquire(t, locker) }()

		time.Sleep(time.Second)

		_, err := locker.TryAcquire(t.Context(), name)
		wantIs(t, "TryAcquire() beside a waiter of a guarded name", err, sqllock.ErrUnreachable)
		wantNot(t, "TryAcquire() beside a waiter of a guarded name", err, sqllock.ErrNotAcquired)

		_ = tx.Rollback()

		release(t, <-waited)
	})
}

// It waited for the holder nearly all the time, and the database is not silent.
func TestDeadlineDuringTheFirstAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t, sqllock.WithTuning(sqllock.Tuning{NoHandOff: true}))
		lock := acquire(t, locker)
		ended := make(chan error, 1)

		go func() {
			_, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second))
			ended <- err
		}()

		time.Sleep(900 * time.Millisecond)

		_, resume := memory.Pause("acquire", sqllocktest.Before)
		defer resume()

		release(t, lock)

		err := <-ended
		wantIs(t, "Acquire() that ended during its first attempt", err, sqllock.ErrNotAcquired)
		wantNot(t, "Acquire() that ended during its first attempt", err, sqllock.ErrUnreachable)
	})
}

// Whoever gives up says how many came before.
func TestPlaceInLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, newLocker(t, memory.Peer()))

		var group sync.WaitGroup

		for range 2 {
			other := newLocker(t, memory.Peer())

			group.Go(func() { release(t, acquire(t, other)) })
			time.Sleep(time.Second)
		}

		var held *sqllock.HeldError

		if _, err := locker.TryAcquire(t.Context(), name); !errors.As(err, &held) || held.Place != 0 {
			t.Errorf("TryAcquire() = %v, with the place %d, want none: it does not wait", err, held.Place)
		}

		_, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second))
		if !errors.As(err, &held) || held.Place != 3 || !strings.Contains(err.Error(), "2 ahead in line") {
			t.Errorf("Acquire() behind two others = %v, with the place %d, want that it tells of them", err, held.Place)
		}

		// The others have it from here on, and it is the next.
		release(t, lock)
		group.Wait()

		lock = acquire(t, newLocker(t, memory.Peer()))

		if _, err = locker.Acquire(t.Context(), name, sqllock.WithMaxWait(time.Second)); !errors.As(err, &held) || held.Place != 1 {
			t.Errorf("Acquire() behind nobody else = %v, with the place %d, want the first", err, held.Place)
		}

		release(t, lock)
		group.Wait()
	})
}

// Whoever gives up after a long wait says who has the lock then, not who had it when the wait
// began.
func TestHolderAtTheEndOfTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		lock := acquire(t, newLocker(t, memory.Peer()), sqllock.WithLabel("first"))
		next := make(chan *sqllock.Lock, 1)
		second := newLocker(t, memory.Peer())

		go func() { next <- acquire(t, second, sqllock.WithLabel("second")) }()

		time.AfterFunc(2*time.Second, func() { release(t, lock) })
		time.Sleep(time.Second)

		_, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(3*time.Second))

		held := new(sqllock.HeldError)
		if !errors.As(err, &held) || held.Holder.Label != "second" || held.Token <= lock.Token() {
			t.Errorf("Acquire() after a hand-over = %v, want that it tells of the second holder", err)
		}

		release(t, <-next)
	})
}

// A name that goes from hand to hand is not taken for a database that does not answer.
func TestLimitsAtABusyName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()

		var group sync.WaitGroup

		for range 3 {
			locker := newLocker(t, memory.Peer())

			for i := range 4 {
				group.Go(func() {
					for n := range 100 {
						limit := time.Duration(1+(n*7+i*13)%60) * time.Millisecond

						lock, err := locker.Acquire(t.Context(), name, sqllock.WithMaxWait(limit))
						if err == nil {
							time.Sleep(time.Duration(1+n%11) * time.Millisecond)
							release(t, lock)

							continue
						}

						wantIs(t, fmt.Sprintf("Acquire() with a limit of %s", limit), err, sqllock.ErrNotAcquired)
						wantNot(t, fmt.Sprintf("Acquire() with a limit of %s", limit), err, sqllock.ErrUnreachable)
					}
				})
			}
		}

		group.Wait()
	})
}

// In the order of arrival, also where nobody is notified.
func TestLineOfManyProcesses(t *testing.T) {
	t.Parallel()

	for _, options := range [][]sqllock.LockerOption{nil, {sqllock.WithTuning(sqllock.Tuning{NoNotifications: true})}} {
		t.Run(fmt.Sprint(len(options)), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const processes = 20

				memory := sqllocktest.NewMemory()
				lock := acquire(t, newLocker(t, memory))
				order := make(chan int, processes)

				var group sync.WaitGroup

				for i := range processes {
					locker := newLocker(t, memory.Peer(), options...)

					group.Go(func() {
						lock := acquire(t, locker)
						order <- i

						time.Sleep(time.Duration(i%3) * time.Millisecond)
						release(t, lock)
					})
					time.Sleep(10 * time.Millisecond)
				}

				released := time.Now()
				release(t, lock)
				group.Wait()

				for want := range processes {
					if got := <-order; got != want {
						t.Errorf("process %d has the lock when it is the turn of %d", got, want)
					}
				}

				if took := time.Since(released); took > 3*time.Second {
					t.Errorf("all %d had the lock after %s, want it to go on at once", processes, took)
				}
			})
		})
	}
}

// lineless is a strategy that cannot write to the line.
type lineless struct{ *sqllocktest.Memory }

func (lineless) Enqueue(_ context.Context, all []strategies.Waiter, _ time.Duration) ([]bool, []error) {
	return make([]bool, len(all)), slices.Repeat([]error{errors.New("not now")}, len(all))
}

// Whoever cannot get into the line has its turn, and no more turns than those in it.
func TestBesideTheLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const contenders = 4

		var (
			group  sync.WaitGroup
			grants [contenders]int
		)

		memory := sqllocktest.NewMemory()
		end := time.Now().Add(time.Minute)

		for i := range contenders {
			var strategy strategies.Strategy = memory.Peer()
			if i == 0 {
				strategy = lineless{memory.Peer()}
			}

			locker := newLocker(t, strategy, sqllock.WithTuning(sqllock.Tuning{NoNotifications: true}))

			group.Go(func() {
				for time.Now().Before(end) {
					lock := acquire(t, locker)
					grants[i]++

					time.Sleep(5 * time.Millisecond)
					release(t, lock)
				}
			})
		}

		group.Wait()

		for _, others := range grants[1:] {
			if grants[0] == 0 || grants[0] > others {
				t.Errorf("grants = %d, want some of the first, and no more than of any other", grants)
			}
		}
	})
}

// Those who leave together do not take along one that is just entering another line.
func TestEnteringWhileOthersLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, locker := setup(t)
		holder := newLocker(t, memory.Peer())
		names := []string{"1", "2", "3", "4"}
		cancels := make([]context.CancelFunc, len(names))

		wait := func(i int) {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel

			go func() { _, _ = locker.Acquire(ctx, names[i]) }()
		}

		for i, name := range names {
			if _, err := holder.Acquire(t.Context(), name); err != nil {
				t.Fatalf("Acquire(%q) = %v, want the lock", name, err)
			}

			if i < 3 {
				wait(i)
			}
		}

		time.Sleep(10 * time.Millisecond)

		leaving, left := memory.Pause("leave", sqllocktest.Before)
		entered, answer := memory.Pause("enqueue", sqllocktest.After)

		cancels[0]()
		<-leaving
		wait(3)
		<-entered

		next := strategies.Waiter{Name: names[3], Process: "next", ID: "1"}
		if _, err := single.Enqueue(t.Context(), memory.Peer(), next, time.Minute); err != nil {
			t.Fatalf("Enqueue() = %v, want nil", err)
		}

		cancels[1]()
		cancels[2]()
		time.Sleep(10 * time.Millisecond)
		left()
		time.Sleep(10 * time.Millisecond)
		answer()
		time.Sleep(10 * time.Millisecond)

		waiters, err := memory.Peer().Waiters(t.Context(), strategies.WaiterFilter{})
		if err != nil || len(waiters) != 2 || waiters[1].ID != next.ID {
			t.Errorf("Waiters() = %+v, %v, want the one that had just come before the next", waiters, err)
		}

		cancels[3]()
	})
}

// listening is a strategy that counts who listens.
type listening struct {
	*sqllocktest.Memory

	now *atomic.Int64
}

func (l listening) Listen(ctx context.Context, process string, ready func(), turn func(name, id string, line int64), look func(name string, released bool)) error {
	l.now.Add(1)
	defer l.now.Add(-1)

	return l.Memory.Listen(ctx, process, ready, turn, look)
}

// queue has some wait for a name that is held, each on a database connection of its own. Each has a turn, gives the lock back, and is
// told of by its place.
func queue(t *testing.T, memory *sqllocktest.Memory, waiters int) (peers []*sqllocktest.Memory, listen *atomic.Int64, turns chan int) {
	t.Helper()

	listen, turns = new(atomic.Int64), make(chan int, waiters)

	for i := range waiters {
		peers = append(peers, memory.Peer())
		locker := newLocker(t, listening{peers[i], listen})

		go func() {
			if lock, err := locker.Acquire(t.Context(), name); err == nil {
				turns <- i

				release(t, lock)
			}
		}()

		time.Sleep(10 * time.Millisecond)
	}

	return peers, listen, turns
}

// Of those who wait in a line that stands still the first two listen. When it moves they all have their turns in order, those who
// listen at once and the others soon, and afterwards nobody listens.
func TestWhoIsFarBackListensNoMore(t *testing.T) {
	t.Parallel()

	for still, waiters := range map[time.Duration]int{time.Minute: 50, 10 * time.Minute: 100, time.Hour: 5} {
		t.Run(still.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				memory, holder := setup(t)
				held := acquire(t, holder)
				_, listen, turns := queue(t, memory, waiters)

				time.Sleep(time.Second)

				if n := listen.Load(); n != int64(waiters) {
					t.Errorf("%d listen in a line that was just made, want %d", n, waiters)
				}

				time.Sleep(still)

				if n := listen.Load(); n != 2 {
					t.Errorf("%d listen in a line that has stood still, want 2", n)
				}

				began := time.Now()

				release(t, held)

				for i := range waiters {
					if got := <-turns; got != i {
						t.Errorf("turn %d was had by %d", i, got)
					}

					took, most := time.Since(began), 10*time.Millisecond
					if i >= 2 {
						most += min(time.Duration(i)*time.Second, still/4, time.Minute)
					}

					if took > most {
						t.Errorf("turn %d in a line that has stood still for %s took %s, want at most %s", i, still, took, most)
					}
				}

				time.Sleep(time.Minute)

				if n := listen.Load(); n != 0 {
					t.Errorf("%d listen after all have had their turns, want none", n)
				}
			})
		})
	}
}

// In the tenth minute one who is far back sends a statement in as many seconds as there are others ahead, and each keeps its place.
func TestWhoIsFarBackSendsLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, holder := setup(t)
		acquire(t, holder)

		peers, _, _ := queue(t, memory, 50)

		time.Sleep(9 * time.Minute)

		for _, peer := range peers {
			peer.Reset()
		}

		for range 60 {
			time.Sleep(time.Second)

			if waiters, err := holder.Waiters(t.Context(), strategies.WaiterFilter{}); err != nil || len(waiters) != len(peers) {
				t.Fatalf("Waiters() = %d, %v, want %d", len(waiters), err, len(peers))
			}
		}

		for i, peer := range peers {
			sent, most := len(peer.Statements()), 90+2 // the first two say once a second that they wait, and look every two
			if i >= 2 {
				pause := time.Duration(min(i, 20)) * time.Second
				most = 2 * int(time.Minute/(pause-pause/8)+1) // looks, each of which says that it waits
			}

			if sent == 0 || sent > most {
				t.Errorf("place %d sent %d statements in a minute, want some, and at most %d", i+1, sent, most)
			}
		}
	})
}

// One that dies when it is far back is passed when it would have looked, and its entry counts no more.
func TestWhoHasDiedFarBackIsPassed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const (
			waiters = 10
			dead    = 6
		)

		memory, holder := setup(t)
		held := acquire(t, holder)
		peers, _, turns := queue(t, memory, waiters)

		time.Sleep(time.Hour)
		peers[dead].Fail("*", 1<<30, sqllocktest.Before, sqllock.ErrUnreachable)

		began := time.Now()

		release(t, held)

		for i := range waiters {
			if i == dead {
				continue
			}

			if got := <-turns; got != i {
				t.Errorf("turn %d was had by %d", i, got)
			}
		}

		if took, most := time.Since(began), dead*time.Second+3*time.Second; took > most {
			t.Errorf("all but the dead one had their turns in %s, want at most %s", took, most)
		}

		peers[dead].Reset() // for the end of the test
	})
}

// A process with one wait far back and another that is the first in its line keeps and notices both.
func TestFarBackInOneLineAndFirstInAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, holder := setup(t)
		held := acquire(t, holder)
		queue(t, memory, 5)

		locker := newLocker(t, memory.Peer())
		far := background(t, locker, name)

		time.Sleep(10 * time.Minute)

		other, err := holder.Acquire(t.Context(), "other")
		if err != nil {
			t.Fatalf("Acquire() = %v, want nil", err)
		}

		first := background(t, locker, "other")

		time.Sleep(time.Minute)

		if waiters, err := holder.Waiters(t.Context(), strategies.WaiterFilter{}); err != nil || len(waiters) != 7 {
			t.Errorf("Waiters() = %d, %v, want 7", len(waiters), err)
		}

		began := time.Now()

		release(t, other)
		release(t, <-first)

		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the first of a line had its turn after %s", took)
		}

		release(t, held)
		release(t, <-far)

		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the last of six had its turn after %s", took)
		}
	})
}

// background waits for a name beside the test.
func background(t *testing.T, locker *sqllock.Locker, name string) <-chan *sqllock.Lock {
	t.Helper()

	locks := make(chan *sqllock.Lock, 1)

	go func() {
		lock, err := locker.Acquire(t.Context(), name)
		if err != nil {
			t.Errorf("Acquire(%q) = %v, want nil", name, err)
		}

		locks <- lock
	}()

	time.Sleep(10 * time.Millisecond)

	return locks
}

// untold is a strategy that does not know whether a name is taken when somebody enters its line.
type untold struct{ *sqllocktest.Memory }

func (s untold) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	_, errs := s.Memory.Enqueue(ctx, all, ttl)

	return make([]bool, len(all)), errs
}

// entered counts the statements that put waiters into their lines, and how often they name each.
type entered struct {
	*sqllocktest.Memory

	answers time.Duration // how late the answer to an acquisition in turn is

	mu         sync.Mutex
	statements int
	process    string
	times      map[string]int // by ID
}

func (s *entered) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.statements++

	for _, one := range all {
		s.process = one.Process
		s.times[one.ID]++
	}

	return s.Memory.Enqueue(ctx, all, ttl)
}

func (s *entered) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	grants, errs := s.Memory.Acquire(ctx, requests)

	if requests[0].Wait != "" && errs[0] == nil {
		time.Sleep(s.answers)
	}

	return grants, errs
}

// closedLine is a strategy whose line cannot be had at first.
type closedLine struct {
	entered

	opens time.Time
}

func (s *closedLine) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	if time.Now().Before(s.opens) {
		time.Sleep(10 * time.Millisecond)

		return make([]bool, len(all)), slices.Repeat([]error{strategies.ErrUnreachable}, len(all))
	}

	return s.entered.Enqueue(ctx, all, ttl)
}

// A statement that failed for many who wait is one failure, after which the line is soon asked for again.
func TestFailureOfManyIsOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waits = 60

		memory, holder := setup(t)
		s := &closedLine{entered{Memory: memory.Peer(), times: map[string]int{}}, time.Now()}
		process := newLocker(t, s)

		var held []*sqllock.Lock

		for i := range waits {
			lock, err := holder.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}

			held = append(held, lock)
		}

		s.opens = time.Now().Add(15 * time.Millisecond) // the first of them goes alone, and then the others together

		var waiting sync.WaitGroup

		for i := range waits {
			waiting.Go(func() {
				lock, err := process.Acquire(t.Context(), fmt.Sprint(i))
				if err != nil {
					t.Error(err)

					return
				}

				release(t, lock)
			})
		}

		time.Sleep(2 * time.Second)

		s.mu.Lock()

		if in := len(s.times); in != waits {
			t.Errorf("two seconds after a failure %d of %d are in line, want all", in, waits)
		}

		s.mu.Unlock()

		for _, lock := range held {
			release(t, lock)
		}

		waiting.Wait()
	})
}

// Those whom the database has forgotten are put into their lines together.
func TestManyAreEnteredAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const waits = 60

		memory, holder := setup(t)
		s := &entered{Memory: memory.Peer(), times: map[string]int{}}
		process := newLocker(t, s)

		var (
			held  []*sqllock.Lock
			locks []<-chan *sqllock.Lock
		)

		for i := range waits {
			lock, err := holder.Acquire(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}

			held, locks = append(held, lock), append(locks, background(t, process, fmt.Sprint(i)))
		}

		s.mu.Lock()
		s.statements = 0
		ids := slices.Collect(maps.Keys(s.times))
		s.mu.Unlock()

		if err := memory.Leave(t.Context(), s.process, ids); err != nil {
			t.Fatal(err)
		}

		time.Sleep(5 * time.Second)

		s.mu.Lock()

		for id, times := range s.times {
			if times != 2 {
				t.Errorf("%s was put into the line %d times, want twice", id, times)
			}
		}

		if s.statements > 2 {
			t.Errorf("%d statements put %d waiters into their lines again, want at most 2", s.statements, waits)
		}

		s.mu.Unlock()

		for i := range waits {
			release(t, held[i])
			release(t, <-locks[i])
		}
	})
}

// Whoever has just been granted the lock is not put into its line again, though the answer has not come.
func TestGrantedIsNotEnteredAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, holder := setup(t)
		s := &entered{Memory: memory.Peer(), times: map[string]int{}, answers: 4 * time.Second}
		process := newLocker(t, s)

		held := acquire(t, holder)
		lock := background(t, process, name)

		time.Sleep(time.Second)
		release(t, held)
		release(t, <-lock)

		s.mu.Lock()
		defer s.mu.Unlock()

		for id, times := range s.times {
			if times != 1 {
				t.Errorf("%s was put into the line %d times, want once", id, times)
			}
		}
	})
}

// Who gives up leaves its place to the next of its process, also where its turn need not be told.
func TestWhoGivesUpLeavesItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, holder := setup(t)
		held := acquire(t, holder)
		process, other := newLocker(t, untold{memory.Peer()}), newLocker(t, untold{memory.Peer()})

		ctx, giveUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)

		go func() {
			_, err := process.Acquire(ctx, name)
			gone <- err
		}()

		time.Sleep(100 * time.Millisecond)

		behind := background(t, process, name)
		last := background(t, other, name)

		time.Sleep(time.Second)
		giveUp()
		wantIs(t, "Acquire() that was given up", <-gone, context.Canceled)
		time.Sleep(time.Second)
		release(t, held)

		select {
		case lock := <-behind:
			release(t, lock)
			release(t, <-last)
		case lock := <-last:
			t.Error("who came later had its turn first")
			release(t, lock)
			release(t, <-behind)
		}
	})
}

// Who finds itself the next when it looks after a long rest looks again as soon as any other.
func TestAfterARest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory, holder := setup(t)
		held := acquire(t, holder)

		var stop []context.CancelFunc

		for range 2 {
			locker := newLocker(t, memory.Peer())
			ctx, cancel := context.WithCancel(t.Context())
			stop = append(stop, cancel)

			go func() { _, _ = locker.Acquire(ctx, name) }()

			time.Sleep(10 * time.Millisecond)
		}

		polling := newLocker(t, memory.Peer(), sqllock.WithTuning(sqllock.Tuning{NoNotifications: true}))
		third := background(t, polling, name)

		time.Sleep(time.Minute)

		for _, cancel := range stop {
			cancel()
		}

		time.Sleep(2100 * time.Millisecond) // until it has looked

		began := time.Now()

		release(t, held)
		release(t, <-third)

		if took := time.Since(began); took > 400*time.Millisecond {
			t.Errorf("the next in line had the lock %s after its release, want that it looks often", took)
		}
	})
}

// looking is a strategy that takes a second to say who waits.
type looking struct {
	*sqllocktest.Memory

	now, all, most atomic.Int64
}

func (l *looking) Waiters(ctx context.Context, filter strategies.WaiterFilter) ([]strategies.Waiter, error) {
	defer l.now.Add(-1)

	l.all.Add(1)
	l.most.Store(max(l.most.Load(), l.now.Add(1)))
	time.Sleep(time.Second)

	return l.Memory.Waiters(ctx, filter)
}

// Of many who find names that are kept for others, few look at a time whether these have gone: each needs a connection.
func TestFewLookWhoWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const names = 20

		strategy := &looking{Memory: sqllocktest.NewMemory()}
		stranger, locker := strategy.Peer(), newLocker(t, strategy)

		var group sync.WaitGroup

		for i := range names {
			name := strconv.Itoa(i)

			if _, err := single.Enqueue(t.Context(), stranger, strategies.Waiter{Name: name, Process: "gone", ID: name, Slots: 1}, time.Hour); err != nil {
				t.Fatal(err)
			}

			if err := stranger.Leave(t.Context(), "gone", []string{name}); err != nil {
				t.Fatal(err)
			}

			group.Go(func() {
				if _, err := locker.Acquire(t.Context(), name); err != nil {
					t.Errorf("Acquire() = %v, want the lock", err)
				}
			})
		}

		started := time.Now()

		group.Wait()

		if took := time.Since(started); strategy.most.Load() != 4 || strategy.all.Load() < 4 || took > 2*time.Second {
			t.Errorf("%d looked, %d at a time, and all had their locks after %s; want 4 at a time, and the others in line", strategy.all.Load(), strategy.most.Load(), took)
		}
	})
}
