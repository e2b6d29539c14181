package scenarios

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/worker"
)

const (
	// shortLease is what a take-over waits for: the shortest round one that
	// etcd and ZooKeeper keep too.
	shortLease = 3 * time.Second

	handover      = "hand-over"
	handoverBegan = "hand-over, from the start of the release"
	takeover      = "take-over"
	takeoverShare = "take-over/lease"
)

// handOver lets two processes hand the lock to each other. The holder lets go
// some time after the other has begun to wait: long enough for pauses between
// attempts to have grown, and for a watch to stand.
func handOver(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	job := c.job(worker.Steps, who)

	workers, stop, err := c.crew(ctx, job, job)
	if err != nil {
		return nil, err
	}
	defer stop()

	if err := begin(workers); err != nil {
		return nil, err
	}

	holder, waiter := workers[0], workers[1]
	if _, err := holder.do(ctx, worker.Acquire); err != nil {
		return nil, err
	}

	samples := make(report.Samples)

	for until := time.Now().Add(4 * c.Duration); time.Now().Before(until); holder, waiter = waiter, holder {
		if err := waiter.Say(worker.Acquire); err != nil {
			return nil, err
		}

		pause(ctx, 10*time.Millisecond+rand.N(140*time.Millisecond))

		released, err := holder.do(ctx, worker.Free)
		if err != nil {
			return nil, err
		}

		acquired, err := waiter.step(ctx)
		if err != nil {
			return nil, err
		}

		// One clock for both processes: before the release there was one holder.
		if acquired.Done < released.Began {
			return nil, errors.New("two processes held the lock at once")
		}

		samples[handover] = append(samples[handover], float64(acquired.Done-released.Done))
		samples[handoverBegan] = append(samples[handoverBegan], float64(acquired.Done-released.Began))
	}

	_, err = holder.do(ctx, worker.Free)

	return samples, err
}

// takeOver kills a holder while another process waits.
func takeOver(ctx context.Context, c *Conductor, who contestant) (report.Samples, error) {
	job := c.job(worker.Steps, who)
	job.Lease = shortLease

	workers, stop, err := c.crew(ctx, job, job)
	if err != nil {
		return nil, err
	}
	defer stop()

	if err := begin(workers); err != nil {
		return nil, err
	}

	if _, err := workers[0].do(ctx, worker.Acquire); err != nil {
		return nil, err
	}

	if err := workers[1].Say(worker.Acquire); err != nil {
		return nil, err
	}

	pause(ctx, 500*time.Millisecond)

	killed := worker.Clock()
	if err := workers[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}

	acquired, err := workers[1].step(ctx)
	if err != nil {
		return nil, err
	}

	after := float64(acquired.Done - killed)

	return report.Samples{takeover: {after}, takeoverShare: {after / float64(shortLease)}}, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
