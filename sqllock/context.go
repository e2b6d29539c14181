package sqllock

import (
	"context"
	"errors"
)

// heldContext is a context that ends with a hold, or with the first of several. The goroutine that ends it when
// the trust window does comes too late in a process that was stopped for a while, so
// its Err looks at the clocks itself. Value and Done are those of a context of the
// standard library, which finds itself through them: what is derived from this one
// needs no goroutine of its own. Beside that, Value has the context itself.
type heldContext struct {
	context.Context //nolint:containedctx // it is one

	holds   []*hold                 // in the order of the names
	cancel  context.CancelCauseFunc // of Context
	outside context.Context         //nolint:containedctx // what it was made of, which has the lock around this one
	under   any                     // what it is the context of: the first hold, or the lock of a reader
}

// reentry is the context key under which a lock's context has what it is the context of. A *reentry is asked for, which
// takes no memory of its own.
type reentry struct {
	locker *Locker
	name   string
}

// heldUnder returns a context of ctx that ends with the first of some holds, which are sorted by name, and what ends that.
func heldUnder(ctx context.Context, holds []*hold) (*heldContext, func()) {
	c := &heldContext{holds: holds, outside: ctx, under: holds[0]}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	stops := make([]func() bool, len(holds))

	for i, h := range holds {
		stops[i] = context.AfterFunc(h.ctx, func() { c.cancel(context.Cause(h.ctx)) })
	}

	return c, func() {
		for _, stop := range stops {
			stop()
		}

		if c.Err() == nil { // or else it is that one was lost
			c.cancel(ErrReleased)
		}
	}
}

// over returns a context of ctx that ends with this one, too, and under which the same is held; and what ends that.
func (c *heldContext) over(ctx context.Context) (*heldContext, func()) {
	work, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c, func() { cancel(context.Cause(c)) })

	return &heldContext{work, c.holds, cancel, ctx, c.under}, func() {
		stop()
		cancel(nil)
	}
}

// ended is nil while all are held; else a *LostError if one was lost, or an ErrReleased.
func (c *heldContext) ended() (ended error) {
	for _, h := range c.holds {
		if err := h.err(); err != nil && !errors.Is(ended, ErrLost) {
			ended = err
		}
	}

	return ended
}

// Value is that of a context of the standard library, but for the context itself and its lock.
func (c *heldContext) Value(key any) any {
	switch k := key.(type) {
	case innermost:
		return c
	case *reentry:
		for i, h := range c.holds {
			switch {
			case *k != reentry{h.locker, h.name}:
			case i == 0:
				return c.under
			default:
				return h
			}
		}
	}

	return c.Context.Value(key)
}

// Err is nil while the holds are, as long as nothing else ended the context.
func (c *heldContext) Err() error {
	if ended := c.ended(); ended != nil {
		c.cancel(ended)
	}

	return c.Context.Err()
}
