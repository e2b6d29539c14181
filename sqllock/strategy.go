package sqllock

import (
	"context"
	"errors"
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
	// ErrUnsupported, ErrNoSchema or ErrReadOnly is final. One that wraps
	// ErrTooManyConnections says that nothing was taken, or was given back with
	// its connection. After any other error the outcome is unknown: the grant
	// may exist in the database. An attempt that is repeated with the same
	// owner must then succeed, with the same token, or the strategy must have
	// ended what the first one took.
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
	// Tokens is how many tokens the grant is to have, if it is a Reserver. Zero
	// is one.
	Tokens int64
	// Waiting: the name was held at the last attempt, and nothing was heard of
	// its release since.
	Waiting bool
	// DurableRelease: the release waits until it is on disk, too. Otherwise it
	// need not: if it is lost in a crash of the server, the lease ends the grant.
	DurableRelease bool
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

// Batcher is a strategy that serves several calls with one statement. The core
// sends what has gathered while another statement was under way. Answers come
// in the order of the calls, and each has the meaning that it would have alone.
// A call that the statement could not serve, because a row was locked for
// example, is answered with ErrAlone and not waited for: the core then makes it
// alone.
type Batcher interface {
	// TryAcquireAll makes one attempt for each request. Their names differ.
	TryAcquireAll(ctx context.Context, requests []Request) ([]Grant, []error)
	// RenewAll renews grants of this strategy, for the same lease.
	RenewAll(ctx context.Context, grants []Grant, lease time.Duration) []error
	// ReleaseAll ends grants of this strategy.
	ReleaseAll(ctx context.Context, grants []Grant) []error
}

// ErrAlone is a Batcher's answer to a call that has to be made alone. Nothing was
// granted; a renewal or a release may have been done all the same.
var ErrAlone = errors.New("not together with others")

// Reserver is a grant that can have several tokens, for holders of this process
// one after the other.
type Reserver interface {
	// Next returns the grant under its next token, nil if it has none left. The
	// next grant of the name, whoever gets it, has a larger token than any that
	// was reserved, also after a crash. With a nil the grant is unchanged;
	// otherwise it guards no more.
	Next() Grant
}

// Notifier is a strategy that notes who waits for a name, and tells of its
// release.
type Notifier interface {
	// Register notes for so long that somebody waits for the name. It returns
	// false if it could not, because the name is not held or changes hands.
	Register(ctx context.Context, name string, d time.Duration) (bool, error)
	// Listen calls ready when from now on the release of no name is missed that
	// somebody is registered for, and then released for each. It returns when ctx
	// or the connection ends, and an ErrUnsupported where it can not work.
	Listen(ctx context.Context, ready func(), released func(name string)) error
}

// Crowder is a grant that knows, when it has been released, whether somebody was
// registered as waiting. The next holder in this process lets others go first then.
type Crowder interface {
	Crowded() bool
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

// Historian is an Administrator that knows a name's latest grant also when
// nobody holds it.
type Historian interface {
	// LastGrant tells of the name's latest grant. It waits for nobody's
	// transaction. ErrNotHeld: there is none.
	LastGrant(ctx context.Context, name string) (LastGrant, error)
}

// Tx is the caller's own transaction, as postgres.Tx, mysql.Tx, sqlite.Tx and
// their siblings wrap it. The core passes it on and does nothing with it.
type Tx interface {
	// Database names the dialect.
	Database() string
}
