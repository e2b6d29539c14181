package sqllocktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllock"
)

func exclusionCases() []testCase {
	return []testCase{
		{"exclusion/two processes", nil, exclusion},
		{"exclusion/two lockers of one strategy", nil, exclusionOneStrategy},
		{"exclusion/one locker", nil, exclusionOneLocker},
		{"exclusion/names are independent", nil, exclusionNames},
		{"exclusion/hammer", nil, hammer},
	}
}

func exclusion(e *env) {
	first := e.acquire(e.a)
	held := e.refused(e.b)

	if held.Token != 0 && held.Token != first.Token() {
		e.Errorf("HeldError.Token = %d, want %d or 0", held.Token, first.Token())
	}

	e.alive(first)
	e.release(first)

	second := e.acquire(e.b)

	e.refused(e.a)
	e.release(second)
}

func exclusionOneStrategy(e *env) {
	other := e.locker(e.Strategy)
	first := e.acquire(e.a)

	e.refused(other)
	e.release(first)
	e.release(e.acquire(other))
}

func exclusionOneLocker(e *env) {
	first := e.acquire(e.a)

	if held := e.refused(e.a); held.Token != first.Token() {
		e.Errorf("HeldError.Token = %d, want %d", held.Token, first.Token())
	}

	e.release(first)
	e.release(e.acquire(e.a))
}

func exclusionNames(e *env) {
	first := e.acquire(e.a)
	second := e.acquireName(e.b, e.name+"/2")
	third := e.acquireName(e.a, e.name+"/3")

	for _, lock := range []*sqllock.Lock{first, second, third} {
		e.alive(lock)
	}

	e.release(second)
	e.alive(first)
	e.alive(third)
	e.release(first)
	e.release(third)
}

// hammer has several workers in both processes.
func hammer(e *env) {
	hammerWith(e, slices.Repeat([]*sqllock.Locker{e.a, e.b}, 4), 6)
}

// hammerWith is one counter that is safe only if the lock is. Each of the lockers has
// the name so many times.
func hammerWith(e *env, lockers []*sqllock.Locker, rounds int) {
	var (
		group  sync.WaitGroup
		mu     sync.Mutex // for the race detector's sake; the lock keeps the order
		inside int
		tokens []int64
	)

	enter := func(token int64) {
		mu.Lock()
		defer mu.Unlock()

		inside++

		if inside != 1 {
			e.Errorf("%d holders are inside at once", inside)
		}

		tokens = append(tokens, token)
	}
	leave := func() {
		mu.Lock()
		defer mu.Unlock()

		inside--
	}

	// Nothing here is about time: on SQLite, all of the cases that run share one writer.
	ctx, cancel := context.WithTimeout(e.Context(), 4*e.patience)
	defer cancel()

	for _, locker := range lockers {
		group.Go(func() {
			for range rounds {
				lock, err := locker.Acquire(ctx, e.name, sqllock.WithTuning(sqllock.Tuning{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond}))
				if err != nil {
					e.Errorf("Acquire(%q) = %v%s", e.name, err, e.holder(e.name))

					return
				}

				enter(lock.Token())
				e.elapse(time.Millisecond)
				leave()

				if err := lock.Release(ctx); err != nil {
					e.Errorf("Release() = %v", err)
				}
			}
		})
	}

	group.Wait()

	if want := len(lockers) * rounds; len(tokens) != want {
		e.Errorf("%d grants, want %d", len(tokens), want)
	}

	for i := 1; i < len(tokens); i++ {
		e.grow(fmt.Sprintf("grant %d", i), tokens[i-1], tokens[i])
	}
}
