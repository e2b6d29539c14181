package sqllock

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// events tell observers and the log of what happened where others must not wait for
// them: a log that blocks, as a full pipe does, would keep the contexts of other
// locks alive beyond their trust windows. One goroutine tells it, in order, and
// there is none while there is nothing to tell.
type events struct {
	locker *Locker

	mu      sync.Mutex
	items   []item // losses, of which there is at most one for each lock, and maxNews others at most
	others  int
	dropped int
	told    chan struct{} // closed when there is nothing left to tell; nil if there is nothing
}

// item is an event to be told of.
type item struct {
	ctx   context.Context //nolint:containedctx // its values, for the observers
	event Event
}

const (
	// maxNews is how many events other than losses are kept for a log or an observer
	// that blocks. Then the oldest go.
	maxNews = 1024
	// lastNews is how long Close waits for them.
	lastNews = time.Second
)

// add lets an event be told of soon.
func (n *events) add(ctx context.Context, e Event) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.items = append(n.items, item{ctx, e})

	if e.Kind != Lost {
		n.others++
	}

	if n.others > maxNews {
		oldest := slices.IndexFunc(n.items, func(i item) bool { return i.event.Kind != Lost })
		n.items = slices.Delete(n.items, oldest, oldest+1)
		n.others--
		n.dropped++
	}

	if n.told == nil {
		n.told = make(chan struct{})

		go n.tell()
	}
}

// tell tells what there is until nothing is left.
func (n *events) tell() {
	n.mu.Lock()

	for len(n.items) > 0 {
		i, dropped := n.items[0], n.dropped
		n.items, n.dropped = n.items[1:], 0

		if i.event.Kind != Lost {
			n.others--
		}

		n.mu.Unlock()

		if dropped > 0 {
			n.locker.logger.LogAttrs(context.WithoutCancel(i.ctx), slog.LevelWarn,
				"events of locks dropped, because the log or an observer took too long", slog.Int("events", dropped))
		}

		n.locker.tell(i.ctx, i.event)
		n.mu.Lock()
	}

	close(n.told)
	n.items, n.told = nil, nil
	n.mu.Unlock()
}

// last waits a moment, so that what is told last is not lost with the process.
func (n *events) last(ctx context.Context) {
	n.mu.Lock()
	told := n.told
	n.mu.Unlock()

	if told == nil {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, lastNews)
	defer cancel()

	select {
	case <-told:
	case <-ctx.Done():
	}
}
