package call

import (
	"context"
	"sync"
	"time"
)

// Deadline makes contexts that end after a time. Those that are made within deadlineShare have one timer, and what ends
// with it, so each may end so much earlier.
type Deadline struct {
	After time.Duration

	mu   sync.Mutex
	made time.Time
	ctx  context.Context    //nolint:containedctx // of all calls that began since then
	end  context.CancelFunc // is not called: nobody knows when the last of them has
}

const deadlineShare = 50 * time.Millisecond

// Of returns a context that has the values of ctx, and not its end.
func (d *Deadline) Of(ctx context.Context) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()

	if n := time.Now(); d.ctx == nil || n.Sub(d.made) >= min(deadlineShare, d.After/2) {
		d.made = n
		d.ctx, d.end = context.WithTimeout(context.Background(), d.After) //nolint:forbidigo,gosec // it is that of many calls, and ends by itself
	}

	return &deadlineContext{d.ctx, ctx}
}

// deadlineContext is a context with the values of another one.
type deadlineContext struct {
	context.Context //nolint:containedctx // it is one

	values context.Context //nolint:containedctx // has them
}

// Value is that of the context of the standard library, which finds itself in this way and has nothing else, or that of
// the values.
func (c *deadlineContext) Value(key any) any {
	if own := c.Context.Value(key); own != nil {
		return own
	}

	return c.values.Value(key)
}
