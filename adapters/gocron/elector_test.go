package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	_ "modernc.org/sqlite"

	locks "github.com/sqllock/sqllock/adapters/gocron"
	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/internal/filelock"
	"github.com/sqllock/sqllock/sqllock"
)

// member is a scheduler that runs jobs only when it leads.
type member struct {
	elector *locks.Elector
	resign  context.CancelFunc
	runs    atomic.Int64
}

func newMember(t *testing.T, file string) *member {
	t.Helper()

	leader, err := election.New(filelock.NewLocker(t, file), "scheduler")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	m := &member{elector: locks.Elect(ctx, leader), resign: cancel}

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(m.elector))
	if err != nil {
		t.Fatal(err)
	}

	newJob(t, scheduler, gocron.DurationJob(20*time.Millisecond), func() { m.runs.Add(1) })
	scheduler.Start()

	t.Cleanup(func() {
		if err := scheduler.Shutdown(); err != nil {
			t.Error(err)
		}

		cancel()

		if err := m.elector.Wait(); err != nil {
			t.Error(err)
		}
	})

	return m
}

func (m *member) untilRun(t *testing.T) {
	t.Helper()

	filelock.Eventually(t, func() error {
		if n := m.runs.Load(); n < 3 {
			return fmt.Errorf("%d runs, want 3", n)
		}

		return nil
	})
}

func TestTheLeaderRunsJobsAndAnotherWhenItResigns(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	first := newMember(t, file)

	first.untilRun(t)

	second := newMember(t, file)
	before := first.runs.Load()

	filelock.Eventually(t, func() error {
		if first.runs.Load() < before+10 {
			return errors.New("the leader ran too few jobs")
		}

		return nil
	})

	if n := second.runs.Load(); n != 0 {
		t.Errorf("the one that does not lead ran %d jobs, want 0", n)
	}

	if err := second.elector.IsLeader(t.Context()); !errors.Is(err, locks.ErrNotLeader) {
		t.Errorf("IsLeader() = %v, want ErrNotLeader", err)
	}

	first.resign()

	if err := first.elector.Wait(); err != nil {
		t.Errorf("Wait() = %v, want nil", err)
	}

	second.untilRun(t)

	if err := first.elector.IsLeader(t.Context()); !errors.Is(err, locks.ErrNotLeader) {
		t.Errorf("IsLeader() of the one that resigned = %v, want ErrNotLeader", err)
	}
}

func TestElectorSaysWhyTheCampaignEnded(t *testing.T) {
	t.Parallel()

	locker := filelock.NewLocker(t, filelock.NewFile(t))
	if err := locker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	leader, err := election.New(locker, "scheduler")
	if err != nil {
		t.Fatal(err)
	}

	elector := locks.Elect(t.Context(), leader)

	if err := elector.Wait(); !errors.Is(err, sqllock.ErrClosed) {
		t.Errorf("Wait() = %v, want ErrClosed", err)
	}

	if err := elector.IsLeader(t.Context()); !errors.Is(err, sqllock.ErrClosed) || !errors.Is(err, locks.ErrNotLeader) {
		t.Errorf("IsLeader() = %v, want ErrNotLeader and ErrClosed", err)
	}
}
