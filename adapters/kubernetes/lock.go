// Package kuberneteslock elects leaders with client-go's package leaderelection
// in a SQL database, in place of a Lease object of Kubernetes: for controllers
// that run outside of a cluster, in several, or beside the database that they
// write to.
//
//	locker, err := sqllock.New(cas.New(postgres.New(pool)))
//	...
//	lock := kuberneteslock.New(locker, "controllers/invoices", hostname+"_"+string(uuid.NewUUID()))
//	...
//	ctx, cancel := kuberneteslock.WithCancel(ctx)
//	defer cancel()
//
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ...
//	})
//
// The leader holds a lock of sqllock, whose lease is LeaseDuration in whole
// seconds. The elector renews it every RetryPeriod; sqllock itself does not. So
// it is the database, by its own clock, that has one leader at a time, whatever
// an elector believes. Others see in the record when the lease has ended, and
// need not watch it for a LeaseDuration as they do with a Lease object.
//
// # Before
//
// sqllock's own tables must be there: "sqllock migrate up" makes them. An elector
// only logs [sqllock.ErrNoSchema], and tries again.
//
// # If the lock is lost
//
// A lock is lost if it could not be renewed in time, or was taken away with
// [sqllock.Locker.ForceRelease]. client-go stops leading when it could not renew
// for RenewDeadline, even if it knows better. Under [WithCancel] it stops at once,
// and before another elector can lead. Only a lock that was taken away is the next
// leader's before that, until the holder's next renewal. An elector whose lock was
// lost does not lead again before it has stopped.
//
// Where two leaders would do damage, use [Lock.Held]: the token of its lock grows
// with each leader, and its Guard protects a transaction.
package kuberneteslock

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/sqllock/sqllock/sqllock"
)

// What the metadata of the lock keep of the record.
const (
	transitions = "leaderTransitions"
	acquired    = "acquireTime"
	duration    = "leaseDurationSeconds"
)

// jitter is less than the time between two renewals, and more than passes while a statement reads
// the clock twice.
const jitter = 50 * time.Millisecond

// Lock is a lock of sqllock as client-go knows it. One elector has it at a time.
// It is safe for concurrent use. Make it with [New].
type Lock struct {
	locker   *sqllock.Locker
	name     string
	identity string

	mu      sync.Mutex
	lock    *sqllock.Lock // the last that was acquired; nil if none was, or it was released
	leading bool          // the elector takes itself for the leader
	forget  func() bool   // ends the watch that WithCancel asked for

	// What Get has seen last: which grant, and how long its lease lasts from the acquisition on.
	token int64
	lasts time.Duration
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns the lock of this name for leaderelection.LeaderElectionConfig. All
// candidates give the same name. The identity says in the database who leads: at most
// [sqllock.MaxLabelLength] bytes, and another one for each process. New sends nothing
// to the database.
func New(locker *sqllock.Locker, name, identity string) *Lock {
	return &Lock{locker: locker, name: name, identity: identity, forget: func() bool { return true }}
}

// WithCancel returns a context for leaderelection.LeaderElector.Run. It ends if the lock is
// lost, with a *[sqllock.LostError] as its cause. Calling cancel ends it, too, and frees its
// resources.
func WithCancel(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cause := context.WithCancelCause(parent)

	return context.WithValue(ctx, cancelKey{}, cause), func() { cause(nil) }
}

type cancelKey struct{}

// Held returns the lock for as long as this elector leads, to use its token, its context or its
// guard. It is nil if it does not lead; the methods of a nil lock return [sqllock.ErrNotAcquired].
func (l *Lock) Held() *sqllock.Lock {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.leading {
		return nil
	}

	return l.lock
}

// Get returns who leads. HolderIdentity is empty if nobody does: the lock was released, or its lease
// has ended by the database's clock. The bytes change with each leader and each renewal, and not
// otherwise. A name that was never acquired is a NotFound error of Kubernetes. Other errors are
// those of [sqllock.Locker.Inspect].
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	status, err := l.locker.Inspect(ctx, l.name)
	if err != nil {
		return nil, nil, err
	}

	if status.Token == 0 {
		return nil, nil, errors.NewNotFound(schema.GroupResource{Group: "sqllock", Resource: "locks"}, l.name)
	}

	lasts := l.see(status)
	record := l.record(status, lasts)

	raw, err := json.Marshal(struct {
		Record *resourcelock.LeaderElectionRecord
		Token  int64
		Lasts  time.Duration
	}{record, status.Token, lasts})

	return record, raw, err
}

// see returns how long the lease lasts from the acquisition on, which only a renewal changes.
func (l *Lock) see(status sqllock.Status) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()

	// Both are by the database's clock, of which PostgreSQL asks anew for each.
	lasts := status.HeldFor + status.Remaining
	if l.token != status.Token || (lasts-l.lasts).Abs() > jitter {
		l.token, l.lasts = status.Token, lasts
	}

	return l.lasts
}

// record is what the lock's row says. Its times are those of the leader's clock.
func (l *Lock) record(status sqllock.Status, lasts time.Duration) *resourcelock.LeaderElectionRecord {
	var metadata map[string]string

	// It is empty or somebody else's if the lock was not acquired for an election.
	_ = json.Unmarshal([]byte(status.Holder.Metadata), &metadata)

	record := &resourcelock.LeaderElectionRecord{}
	record.LeaderTransitions, _ = strconv.Atoi(metadata[transitions])

	if !status.Held() {
		return record
	}

	record.HolderIdentity = status.Holder.Label
	record.LeaseDurationSeconds, _ = strconv.Atoi(metadata[duration])

	if at, err := time.Parse(time.RFC3339Nano, metadata[acquired]); err == nil {
		record.AcquireTime = metav1.NewTime(at)
		record.RenewTime = metav1.NewTime(at.Add(lasts - time.Duration(record.LeaseDurationSeconds)*time.Second))
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	// client-go takes itself for the leader if the identity is its own.
	if ours := l.lock != nil && l.lock.Owner() == status.Owner; !ours &&
		(record.HolderIdentity == "" || record.HolderIdentity == l.identity) {
		record.HolderIdentity = status.Holder.String()
	}

	return record
}

// Create acquires the lock, as Update does.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update acquires the lock, or renews it if this elector has it. The lease is the record's
// LeaseDurationSeconds from now on. A record without a holder releases the lock.
//
// Errors are those of [sqllock.Locker.TryAcquire], [sqllock.Lock.Extend] and [sqllock.Lock.Release].
// If the lock was lost it is a *[sqllock.LostError] until the elector has stopped leading.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	lock, leading := l.lock, l.leading
	l.mu.Unlock()

	if record.HolderIdentity == "" {
		return l.release(ctx, lock)
	}

	lease := time.Duration(record.LeaseDurationSeconds) * time.Second

	var err error

	if lock != nil && (leading || lock.Err() == nil) {
		err = lock.Extend(ctx, lease)
	} else {
		lock, err = l.locker.TryAcquire(ctx, l.name,
			sqllock.WithLease(lease), sqllock.WithoutRenewal(), sqllock.WithLabel(l.identity),
			sqllock.WithMetadata(map[string]string{
				transitions: strconv.Itoa(record.LeaderTransitions),
				acquired:    record.AcquireTime.UTC().Format(time.RFC3339Nano),
				duration:    strconv.Itoa(record.LeaseDurationSeconds),
			}))
	}

	if err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.forget()
	l.lock, l.leading = lock, true

	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelCauseFunc); ok {
		//nolint:contextcheck // the lock outlives ctx: its own context is what ends with it
		l.forget = context.AfterFunc(lock.Context(), func() { cancel(lock.Err()) })
	}

	return nil
}

func (l *Lock) release(ctx context.Context, lock *sqllock.Lock) error {
	err := lock.Release(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()

	l.forget()
	l.lock = nil

	return err
}

// RecordEvent is told what becomes of the elector. It keeps no events.
func (l *Lock) RecordEvent(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	// The words of client-go's LeaderElector, which no constant of it has.
	if event == "stopped leading" {
		l.leading = false
	}
}

// Identity returns the identity given to New.
func (l *Lock) Identity() string {
	return l.identity
}

// Describe names the lock in client-go's logs.
func (l *Lock) Describe() string {
	return fmt.Sprintf("sqllock %q", l.name)
}
