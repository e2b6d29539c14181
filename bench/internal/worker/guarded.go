package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/sqllock"
)

// block is how many transactions run before it is the other's turn.
const block = 8

// guarded takes turns with blocks of transactions without and with a guard.
func (s *session) guarded(ctx context.Context) (Result, error) {
	locker, ok := s.locker.(*contest.SQLLock)
	if !ok {
		return Result{}, fmt.Errorf("%s has no guard", s.job.Contestant)
	}

	lock, err := locker.Hold(ctx, s.job.Name)
	if err != nil {
		return Result{}, err
	}

	if err := s.ready(); err != nil {
		return Result{}, err
	}

	times := func(lock *sqllock.Lock, all []float64) ([]float64, error) {
		for range block {
			began := time.Now()

			if err := locker.Transaction(ctx, lock); err != nil {
				return nil, err
			}

			all = append(all, float64(time.Since(began)))
		}

		return all, nil
	}

	var plain, guarded []float64

	for until := time.Now().Add(s.job.Duration); time.Now().Before(until); {
		if plain, err = times(nil, plain); err != nil {
			return Result{}, err
		}

		if guarded, err = times(lock, guarded); err != nil {
			return Result{}, err
		}
	}

	var result Result

	result.Plain, _ = middle(plain)
	result.Guarded, _ = middle(guarded)

	return result, lock.Release(ctx)
}
