package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

const name = "scheduler"

// bubble runs f where time passes when all goroutines wait.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// candidate is a process that campaigns.
type candidate struct {
	*election.Election

	stop  context.CancelFunc
	terms chan term
	leave chan error // what its function returns
	ended chan error // what Run returned
}

// term is one that a candidate began to serve.
type term struct {
	ctx  context.Context //nolint:containedctx // that of the leader
	lock *sqllock.Lock
}

// elect returns an election of a process of its own.
func elect(t *testing.T, strategy strategies.Strategy, options ...sqllock.Option) *election.Election {
	t.Helper()

	locker, err := sqllock.New(strategy, sqllock.WithLease(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := locker.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})

	e, err := election.New(locker, name, options...)
	if err != nil {
		t.Fatal(err)
	}

	return e
}

// campaign lets a process campaign until it is stopped, which the end of the test does at the latest.
func campaign(t *testing.T, strategy strategies.Strategy, options ...sqllock.Option) *candidate {
	t.Helper()

	ctx, stop := context.WithCancel(t.Context())
	c := &candidate{
		Election: elect(t, strategy, options...), stop: stop,
		terms: make(chan term, 1), leave: make(chan error), ended: make(chan error, 1),
	}

	go func() {
		c.ended <- c.Run(ctx, func(ctx context.Context, lock *sqllock.Lock) error {
			c.terms <- term{ctx, lock}

			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-c.leave:
				return err
			}
		})
		close(c.ended)
	}()

	t.Cleanup(func() {
		stop()

		for err := range c.ended { // what it returned, if nobody has looked
			if err != nil {
				t.Errorf("Run() = %v, want nil", err)
			}
		}
	})

	return c
}

// leads waits until the candidate leads, and others do not.
func (c *candidate) leads(t *testing.T, others ...*candidate) term {
	t.Helper()

	served := <-c.terms

	if c.Leading() != served.lock.Token() {
		t.Errorf("Leading() of the leader = %d, want %d", c.Leading(), served.lock.Token())
	}

	for _, other := range others {
		if other.Leading() != 0 {
			t.Errorf("Leading() of another = %d, want 0", other.Leading())
		}
	}

	return served
}

func wantGrowing(t *testing.T, before, after term) {
	t.Helper()

	if after.lock.Token() <= before.lock.Token() {
		t.Errorf("term %d follows %d, want a larger one", after.lock.Token(), before.lock.Token())
	}
}

func wantEnded(t *testing.T, served term, cause error) {
	t.Helper()

	<-served.ctx.Done()

	if err := context.Cause(served.ctx); !errors.Is(err, cause) {
		t.Errorf("the context of the leader ended with %v, want %v", err, cause)
	}
}

func TestSuccession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		first := campaign(t, memory)
		one := first.leads(t)

		second := campaign(t, memory.Peer())
		synctest.Wait()

		third := campaign(t, memory.Peer())
		synctest.Wait()

		first.stop()

		if err := <-first.ended; err != nil {
			t.Errorf("Run() after the end of its context = %v, want nil", err)
		}

		two := second.leads(t, first, third)
		wantGrowing(t, one, two)
		wantEnded(t, one, context.Canceled)

		// It goes behind the third.
		second.leave <- nil

		three := third.leads(t, first, second)
		wantGrowing(t, two, three)
		time.Sleep(time.Second) // the second campaigns again

		third.leave <- nil

		wantGrowing(t, three, second.leads(t, first, third))
	})
}

// What others see of a term is from the database, and who serves it may rely on no more.
func TestRemaining(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		one := campaign(t, memory).leads(t)

		time.Sleep(time.Second)

		leader, err := elect(t, memory.Peer()).Leader(t.Context())
		if err != nil || leader.For != time.Second || leader.Remaining != 9*time.Second {
			t.Errorf("Leader() = %+v, %v, want one that leads for a second, with nine left of ten", leader, err)
		}

		if left := one.lock.Remaining(); left <= 0 || left > leader.Remaining {
			t.Errorf("Remaining() of the term = %s, want at most %s", left, leader.Remaining)
		}
	})
}

func TestErrorOfTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		first := campaign(t, memory)
		first.leads(t)

		second := campaign(t, memory.Peer())
		synctest.Wait()

		failure := errors.New("the leader failed")
		first.leave <- failure

		if err := <-first.ended; !errors.Is(err, failure) {
			t.Errorf("Run() = %v, want the error of the leader", err)
		}

		second.leads(t, first)
	})
}

func TestPanicOfTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		e := elect(t, memory)

		func() {
			defer func() {
				if got := recover(); got != "out" {
					t.Errorf("recover() = %v, want the panic of the leader", got)
				}
			}()

			_ = e.Run(t.Context(), func(context.Context, *sqllock.Lock) error { panic("out") })
		}()

		if leader, err := e.Leader(t.Context()); err != nil || !leader.Nobody() || e.Leading() != 0 {
			t.Errorf("Leader() after a panic = %+v, %v, want nobody", leader, err)
		}
	})
}

func TestLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		first := campaign(t, memory)
		one := first.leads(t)

		if _, err := memory.ForceRelease(t.Context(), strategies.Status{Name: name, Token: one.lock.Token()}, "a test"); err != nil {
			t.Fatal(err)
		}

		forced := time.Now()

		wantEnded(t, one, sqllock.ErrLost)

		if took := time.Since(forced); took > 2*time.Second {
			t.Errorf("the leader heard of it after %s, want a second at most", took)
		}

		var lost *sqllock.LostError
		if cause := context.Cause(one.ctx); !errors.As(cause, &lost) || !errors.As(one.lock.Err(), &lost) {
			t.Errorf("the context of the leader ended with %v, and Err() = %v, want a *LostError", cause, one.lock.Err())
		}

		wantGrowing(t, one, first.leads(t))
	})
}

// A candidacy with a limit ends.
func TestCampaignWithALimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		first := campaign(t, memory)
		first.leads(t)

		if err := <-campaign(t, memory.Peer(), sqllock.WithMaxWait(time.Second)).ended; !errors.Is(err, sqllock.ErrNotAcquired) {
			t.Errorf("Run() = %v, want ErrNotAcquired", err)
		}
	})
}

// What the leader could not do after it was asked to resign is not lost.
func TestErrorAfterARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := elect(t, sqllocktest.NewMemory())
		failure := errors.New("the state was not saved")

		err := e.Run(t.Context(), func(ctx context.Context, _ *sqllock.Lock) error {
			if err := e.RequestResign(ctx, "a test"); err != nil {
				return err
			}

			<-ctx.Done()

			return failure
		})
		if !errors.Is(err, failure) {
			t.Errorf("Run() = %v, want the error of the leader", err)
		}
	})
}

// An outage that is shorter than the trust window changes nothing, and a longer one ends the term in time.
func TestOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		first := campaign(t, memory)
		one := first.leads(t)

		second := campaign(t, memory.Peer())
		synctest.Wait()

		memory.Fail("renew", 10000, sqllocktest.Before, nil)
		time.Sleep(8 * time.Second)

		if err := one.ctx.Err(); err != nil {
			t.Fatalf("the leader's context ended with %v in an outage shorter than the window", context.Cause(one.ctx))
		}

		memory.Reset()
		time.Sleep(20 * time.Second)

		if err := one.ctx.Err(); err != nil || second.Leading() != 0 {
			t.Fatalf("the leader's context ended with %v after the outage", context.Cause(one.ctx))
		}

		memory.Fail("*", 10000, sqllocktest.Before, nil)

		two := second.leads(t, first)
		wantGrowing(t, one, two)
		wantEnded(t, one, sqllock.ErrLost)
		memory.Reset()
	})
}

// A candidate that finds no database goes on.
func TestUnreachableDatabase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		memory.Fail("acquire", 20, sqllocktest.Before, sqllock.ErrUnreachable)
		campaign(t, memory).leads(t)
	})
}

func TestErrorThatNoTryMends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, want := range []error{sqllock.ErrNotAllowed, sqllock.ErrNoSchema, errors.New("database \"nodb\" does not exist")} {
			memory := sqllocktest.NewMemory()
			memory.Fail("acquire", 1000, sqllocktest.Before, want)

			select {
			case err := <-campaign(t, memory).ended:
				if !errors.Is(err, want) {
					t.Errorf("Run() = %v, want %v", err, want)
				}
			case <-time.After(time.Minute):
				t.Errorf("Run() still tries after a minute of %v, want that error", want)
			}
		}
	})
}

// A process that has led knows its database, so it goes on whatever that says.
func TestErrorAfterATerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		c := campaign(t, memory)
		one := c.leads(t)

		memory.Fail("acquire", 20, sqllocktest.Before, errors.New("password authentication failed"))
		c.leave <- nil
		wantGrowing(t, one, c.leads(t))
	})
}

// A campaign inside a term of the same process leaves that as it was.
func TestNestedRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := elect(t, sqllocktest.NewMemory(), sqllock.WithReentrant())

		done := errors.New("done")
		err := e.Run(t.Context(), func(ctx context.Context, term *sqllock.Lock) error {
			err := e.Run(ctx, func(_ context.Context, inner *sqllock.Lock) error {
				if e.Leading() != inner.Token() {
					t.Errorf("Leading() in the inner term = %d, want %d", e.Leading(), inner.Token())
				}

				return done
			})
			if !errors.Is(err, done) {
				t.Errorf("the inner Run() = %v, want %v", err, done)
			}

			if e.Leading() != term.Token() {
				t.Errorf("Leading() after the inner term = %d, want %d", e.Leading(), term.Token())
			}

			return done
		})
		if !errors.Is(err, done) || e.Leading() != 0 {
			t.Errorf("Run() = %v and Leading() = %d, want %v and 0", err, e.Leading(), done)
		}
	})
}

func TestRequestResign(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		observer := elect(t, memory.Peer())

		if err := observer.RequestResign(t.Context(), "a test"); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("RequestResign() without a leader = %v, want ErrNotHeld", err)
		}

		first := campaign(t, memory)
		one := first.leads(t)
		second := campaign(t, memory.Peer())
		synctest.Wait()

		asked := time.Now()

		if err := observer.RequestResign(t.Context(), "a test"); err != nil {
			t.Errorf("RequestResign() = %v, want nil", err)
		}

		wantEnded(t, one, election.ErrResignRequested)

		if took := time.Since(asked); took > 100*time.Millisecond {
			t.Errorf("the leader heard of it after %s, want at once", took)
		}

		two := second.leads(t, first)
		wantGrowing(t, one, two)
		time.Sleep(time.Minute)

		if err := two.ctx.Err(); err != nil {
			t.Errorf("the context of the next leader ended with %v, want that it goes on", context.Cause(two.ctx))
		}

		second.stop()
		first.leads(t, second)
	})
}

func TestObserve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		observer := elect(t, memory.Peer())
		ctx, stop := context.WithCancel(t.Context())
		seen := make(chan election.Leader, 10)
		failed := make(chan error, 10)

		go func() {
			defer close(seen)

			for leader, err := range observer.Observe(ctx) {
				if err != nil {
					failed <- err
				} else {
					seen <- leader
				}
			}
		}()

		if leader := <-seen; !leader.Nobody() {
			t.Errorf("Observe() = %+v, want nobody", leader)
		}

		first := campaign(t, memory, sqllock.WithLabel("one"), sqllock.WithMetadata(map[string]string{election.AddressKey: "http://10.0.0.7"}))
		one := first.leads(t)

		if leader := <-seen; leader.Term != one.lock.Token() || leader.Label != "one" || leader.Address != "http://10.0.0.7" || leader.PID == 0 || leader.Host == "" {
			t.Errorf("Observe() = %+v, want the first", leader)
		}

		first.stop()

		if leader := <-seen; !leader.Nobody() {
			t.Errorf("Observe() after the resignation = %+v, want nobody", leader)
		}

		// It dies: nobody leads as soon as its lease has ended.
		dead, err := single.TryAcquire(ctx, memory, strategies.Request{Name: name, Owner: "dead", Lease: 10 * time.Second, First: true})
		if err != nil {
			t.Fatal(err)
		}

		if leader := <-seen; leader.Term != dead.Token {
			t.Errorf("Observe() = %+v, want term %d", leader, dead.Token)
		}

		began := time.Now()

		if leader := <-seen; !leader.Nobody() || time.Since(began) > 11*time.Second {
			t.Errorf("Observe() of a dead leader = %+v after %s, want nobody after 10s", leader, time.Since(began))
		}

		stop()

		if leader, ok := <-seen; ok {
			t.Errorf("Observe() after the end of its context yields %+v", leader)
		}

		if len(failed) > 0 {
			t.Errorf("Observe() yields %v", <-failed)
		}
	})
}

// One that cannot look says so once, and again who leads when it can.
func TestObserveAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		memory := sqllocktest.NewMemory()
		campaign(t, memory).leads(t)

		peer := memory.Peer()
		observer := elect(t, peer)

		var said []string

		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()

		time.AfterFunc(10*time.Second, func() { peer.Fail("notes", 8, sqllocktest.Before, nil) })

		for leader, err := range observer.Observe(ctx) {
			switch {
			case err != nil:
				said = append(said, "error")
			case leader.Nobody():
				said = append(said, "nobody")
			default:
				said = append(said, "leader")
			}
		}

		if len(said) != 3 || said[0] != "leader" || said[1] != "error" || said[2] != "leader" {
			t.Errorf("Observe() yields %v, want the leader, one error, and the leader", said)
		}
	})
}

func TestNew(t *testing.T) {
	t.Parallel()

	if _, err := election.New(nil, name); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("New(nil) = %v, want ErrInvalidOption", err)
	}

	if err := elect(t, sqllocktest.NewMemory()).Run(t.Context(), nil); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Run(nil) = %v, want ErrInvalidOption", err)
	}
}
