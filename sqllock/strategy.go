package sqllock

import (
	"context"
	"time"
)

// Strategy is how a lock is kept in a database. Users take one from the
// strategies folder and hand it to [New]; the rest of this file concerns those
// who write one. The conformance suite in package sqllocktest says whether a
// strategy keeps the contract.
//
// A strategy is safe for concurrent use. It makes one attempt at a time and
// has no timer, retry loop, goroutine or log of its own: the core has those.
type Strategy interface {
	// TryAcquire makes one attempt to take the name for r.Owner and does not
	// wait for a holder, a guard or a transaction that stands in the way.
	//
	// It returns a *HeldError if the name is not free. An error that wraps
	// ErrUnsupported, ErrNoSchema or ErrReadOnly is final. After any other
	// error the outcome is unknown: the grant may exist in the database. An
	// attempt that is repeated with the same owner must then succeed, with the
	// same token, or the strategy must have ended what the first one took.
	TryAcquire(ctx context.Context, r Request) (Grant, error)
	// Features says what the strategy can do on its database.
	Features() Features
}

// Grant is one acquisition as the strategy holds it. Its methods are safe for
// concurrent use.
type Grant interface {
	// Token is the fencing token, larger than that of every earlier grant of
	// the name.
	Token() int64
	// Renew lets the lease run for so long from now on, by the database's
	// clock, or longer if it does already: a renewal that was held up on its
	// way must not shorten what a later one gave. nil: renewed. An error that
	// matches ErrLost: the grant is gone for good. Any other error: unknown,
	// which is not renewed.
	Renew(ctx context.Context, lease time.Duration) error
	// Check asks the database whether the grant is still there, and changes
	// nothing. Errors are those of Renew.
	Check(ctx context.Context) error
	// Release ends the grant. nil: it was ended by this call or by an earlier
	// one. An error that matches ErrLost: it had been lost before. Any other
	// error: unknown, and the call may be repeated.
	Release(ctx context.Context) error
}

// Request is what an attempt asks for.
type Request struct {
	// Name of the lock, already checked.
	Name string
	// Owner is random, made for one acquisition, and scopes every statement.
	Owner string
	// Lease is how long the grant lasts without renewal.
	Lease time.Duration
	// MinHold and LockDelay are zero unless the caller asked for them.
	MinHold   time.Duration
	LockDelay time.Duration
	// Holder says who asks.
	Holder Holder
}

// Features says what a strategy can do. What is false here answers
// ErrUnsupported, never silence.
type Features struct {
	// Strategy and Database are names for messages: "cas", "postgres".
	Strategy string
	Database string
	// ConnectionHeld: the lock lives in a database session and ends the
	// instant that session does, for whatever reason.
	ConnectionHeld bool
	// Guard: grants implement Guarder, and Guard works.
	Guard bool
	// ReleaseTx: grants implement Guarder, and ReleaseTx works.
	ReleaseTx bool
	// MinHold and LockDelay: the options of those names work.
	MinHold   bool
	LockDelay bool
	// Administer: the strategy implements Administrator.
	Administer bool
}

// Validator is a strategy that can be built wrong, for example with a nil pool
// or for a database that can not carry it. New returns its error.
type Validator interface {
	Validate() error
}

// Settler is a strategy in which an attempt can leave a grant behind though
// its caller never learned of it.
type Settler interface {
	// Settle ends whatever attempts by r.Owner left. nil: nothing is left. It
	// may be repeated.
	Settle(ctx context.Context, r Request) error
}

// Guarder is a grant that can bind itself to the caller's transaction.
type Guarder interface {
	// Guard checks in tx that the grant is the name's latest and keeps any
	// other from being made until tx ends. ErrLost: it is not.
	Guard(ctx context.Context, tx Tx) error
	// ReleaseTx ends the grant as part of tx: it is free when tx commits.
	ReleaseTx(ctx context.Context, tx Tx) error
}

// Administrator is a strategy that can look at all locks and act on those of
// others.
type Administrator interface {
	// Holders lists the locks held at this moment that match f, by name.
	Holders(ctx context.Context, f Filter) ([]HeldLock, error)
	// ForceRelease ends the grant of whoever holds the name. ErrNotHeld: nobody.
	ForceRelease(ctx context.Context, name, reason string) error
	// Reap ends grants whose lease ran out and removes what is left of names
	// that have been idle for longer than retention.
	Reap(ctx context.Context, retention time.Duration) (Reaped, error)
}

// Tx is the caller's own transaction, as postgres.Tx, mysql.Tx, sqlite.Tx and
// their siblings wrap it. The core passes it on and does nothing with it.
type Tx interface {
	// Database names the dialect.
	Database() string
}
