package sqllocktest_test

import (
	"context"
	"sync"
	"time"

	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
)

// floorless removes what there is of all names, and how large their tokens were.
type floorless struct{ *sqllocktest.Memory }

func (f floorless) ReapIdle(context.Context, time.Duration, int) (removed int, more bool, err error) {
	f.Wipe()

	return 1, false, nil
}

// heedless removes the names that it was ever asked for.
type heedless struct {
	*sqllocktest.Memory

	names *sync.Map
}

func reckless(m *sqllocktest.Memory) strategies.Strategy { return heedless{m, &sync.Map{}} }

func (h heedless) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	for _, r := range requests {
		h.names.Store(r.Name, nil)
	}

	return h.Memory.Acquire(ctx, requests)
}

func (h heedless) ReapIdle(ctx context.Context, idle time.Duration, limit int) (removed int, more bool, err error) {
	h.names.Range(func(name, _ any) bool {
		text, _ := name.(string)
		h.Remove(text)

		return true
	})

	return h.Memory.ReapIdle(ctx, idle, limit)
}
