package sqllock

import (
	"context"
	"log/slog"
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
	losses  []item // each is told, and there is at most one for each lock
	others  []item // maxNews at most
	count   int    // of all items, which says in what order they came
	dropped int
	told    chan struct{} // closed when there is nothing left to tell; nil if there is nothing
}

// item is an event to be told of.
type item struct {
	number int
	ctx    context.Context //nolint:containedctx // its values, for the observers
	event  Event
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

	n.count++

	i := item{n.count, ctx, e}

	switch {
	case e.Kind == Lost:
		n.losses = append(n.losses, i)
	case len(n.others) == maxNews:
		n.others = append(n.others[1:], i)
		n.dropped++
	default:
		n.others = append(n.others, i)
	}

	if n.told == nil {
		n.told = make(chan struct{})

		go n.tell()
	}
}

// addAll is add for several.
func (n *events) addAll(all []item) {
	for _, i := range all {
		n.add(i.ctx, i.event)
	}
}

// tell tells what there is until nothing is left.
func (n *events) tell() {
	for {
		i, dropped, ok := n.next()
		if !ok {
			return
		}

		if dropped > 0 {
			n.locker.logger.LogAttrs(context.WithoutCancel(i.ctx), slog.LevelWarn,
				"events of locks dropped, because the log or an observer took too long", slog.Int("events", dropped))
		}

		n.locker.tell(i.ctx, i.event)
	}
}

// next takes the oldest event, and says how many were dropped since the last.
func (n *events) next() (i item, dropped int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	from := &n.others
	if len(n.losses) > 0 && (len(n.others) == 0 || n.losses[0].number < n.others[0].number) {
		from = &n.losses
	}

	if len(*from) == 0 {
		n.losses, n.others = nil, nil
		close(n.told)
		n.told = nil

		return item{}, 0, false
	}

	i, *from = (*from)[0], (*from)[1:]
	dropped, n.dropped = n.dropped, 0

	return i, dropped, true
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
