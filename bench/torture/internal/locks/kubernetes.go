package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func kubernetes() []Lock {
	return []Lock{leaderElection("client-go leaderelection", false), leaderElection("client-go leaderelection, ReleaseOnCancel", true)}
}

func leaderElection(name string, release bool) Lock {
	settings := "the same"
	smallest := "clientgo"
	if !release {
		smallest = ""
		settings = "RenewDeadline 2/3, RetryPeriod 2/15 of the lease; Check: the context of OnStartedLeading; a release leaves the lease to its end"
	}

	return Lock{
		Name: name, Server: "kubernetes", Settings: settings, Smallest: smallest, Module: "k8s.io/client-go",
		Promise: "it does not guarantee that only one acts as leader; clocks may differ, but not in speed",
		Source:  "https://pkg.go.dev/k8s.io/client-go@v0.37.2/tools/leaderelection",
		Token:   "leaseTransitions",
		Open: func(_ context.Context, c Config) (Locker, error) {
			living, end := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{})) // it logs each step otherwise

			return &leaseLocker{
				config: &rest.Config{Host: "http://" + c.Servers[0]}, lease: c.Lease, release: release, living: living, end: end,
			}, nil
		},
	}
}

type leaseLocker struct {
	config  *rest.Config
	lease   time.Duration
	release bool // on cancel

	living context.Context //nolint:containedctx // what is held and waited for ends with it
	end    context.CancelFunc
}

// Acquire runs an election until it is won.
func (l *leaseLocker) Acquire(ctx context.Context, name string) (Held, error) {
	renew := l.lease * 2 / 3

	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", leaseName(name),
		resourcelock.ResourceLockConfig{Identity: rand.Text()}, l.config, renew)
	if err != nil {
		return nil, err
	}

	held := &leaseHeld{record: &recorded{Interface: lock}, release: l.release, ended: make(chan struct{})}
	leading := make(chan context.Context, 1)

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: held.record, LeaseDuration: l.lease, RenewDeadline: renew, RetryPeriod: l.lease * 2 / 15, ReleaseOnCancel: l.release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, err
	}

	running, stop := context.WithCancel(l.living)
	held.stop = stop

	go func() {
		defer close(held.ended)
		defer stop()

		elector.Run(running)
	}()

	select {
	case held.leading = <-leading:
		held.token = held.record.transitions.Load() + 1

		return held, nil
	case <-ctx.Done():
		stop() // should it win now, it gives the lease back

		return nil, ctx.Err()
	case <-l.living.Done():
		return nil, errors.New("the locker was closed")
	}
}

// leaseName is a name that Kubernetes takes.
func leaseName(name string) string {
	return strings.NewReplacer("/", "-", "_", "-", ":", "-").Replace(strings.ToLower(name))
}

// Close ends all elections; leases that are held are given back.
func (l *leaseLocker) Close() { l.end() }

// recorded notes what was written into the Lease, which the elector keeps to itself.
type recorded struct {
	resourcelock.Interface

	transitions atomic.Int64
	free        atomic.Bool
}

// Create makes the Lease.
func (r *recorded) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := r.Interface.Create(ctx, record)
	if err == nil {
		r.note(record)
	}

	return err
}

// Update takes, renews or gives back the Lease.
func (r *recorded) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := r.Interface.Update(ctx, record)
	if err == nil {
		r.note(record)
	}

	return err
}

func (r *recorded) note(record resourcelock.LeaderElectionRecord) {
	r.transitions.Store(int64(record.LeaderTransitions))
	r.free.Store(record.HolderIdentity == "")
}

type leaseHeld struct {
	record  *recorded
	leading context.Context //nolint:containedctx // the library tells with it that the lease is lost
	token   int64
	release bool // at the end of the election
	stop    context.CancelFunc
	ended   chan struct{}
}

// Check looks at the context of the leader.
func (h *leaseHeld) Check() error { return h.leading.Err() }

func (h *leaseHeld) Token() int64 { return h.token }

// Release ends the election, which gives the lease back, or leaves it to its end.
func (h *leaseHeld) Release(ctx context.Context) error {
	h.stop()

	select {
	case <-h.ended:
	case <-ctx.Done():
		return ctx.Err()
	}

	if h.release && !h.record.free.Load() {
		return errors.New("the lease could not be given back")
	}

	return nil
}
