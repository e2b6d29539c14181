package sqllock

import "context"

// heldContext is a context that ends with a hold. The goroutine that ends it when
// the trust window does comes too late in a process that was stopped for a while, so
// its Err looks at the clocks itself. Value and Done are those of a context of the
// standard library, which finds itself through them: what is derived from this one
// needs no goroutine of its own. Beside that, Value has the context itself.
type heldContext struct {
	context.Context //nolint:containedctx // it is one

	hold    *hold
	locks   *Lock                   // if it is the context of several, of which the hold is the innermost
	cancel  context.CancelCauseFunc // of Context
	outside context.Context         //nolint:containedctx // what it was made of, which has the lock around this one
	key     reentry                 // of what it is the context of
	under   any                     // that: the hold, or the lock of a reader
}

// reentry is the context key under which a lock's context has what it is the context of. A *reentry is asked for, which
// takes no memory of its own.
type reentry struct {
	locker *Locker
	name   string
}

// Value is that of a context of the standard library, but for the context itself and its lock.
func (c *heldContext) Value(key any) any {
	switch k := key.(type) {
	case innermost:
		return c
	case *reentry:
		if *k == c.key {
			return c.under
		}
	}

	return c.Context.Value(key)
}

// Err is nil while the hold is, as long as nothing else ended the context.
func (c *heldContext) Err() error {
	ended := c.hold.err()
	if ended == nil && c.locks != nil {
		ended = c.locks.lost()
	}

	if ended != nil {
		c.cancel(ended)
	}

	return c.Context.Err()
}

// locksContext is a context under which several locks are held.
type locksContext struct {
	context.Context //nolint:containedctx // it is one

	locker *Locker
	locks  *Lock
}

// Value is that of the context, but for the holds.
func (c locksContext) Value(key any) any {
	if r, ok := key.(*reentry); ok && r.locker == c.locker {
		if lock := c.locks.Of(r.name); lock != nil {
			return lock.under()
		}
	}

	return c.Context.Value(key)
}
