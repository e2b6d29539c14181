//go:build unix

package stress

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// stalls are the times in which this machine did nothing: no processor for us, or no answer from the disk. What
// is bounded in time (a name that becomes free, a worker that ends) is bounded without them.
type stalls struct {
	mutex sync.Mutex
	spans []span
	since instant // of the heartbeat under way
}

type span struct{ from, to instant }

const (
	heartbeat = 50 * time.Millisecond
	// stalled is how late a heartbeat must be to count.
	stalled = 500 * time.Millisecond
)

// watch beats until ctx ends: it sleeps, and makes a small file durable.
func (s *stalls) watch(ctx context.Context, folder string) {
	folder, err := os.MkdirTemp(folder, "sqllock-stress-")
	if err != nil {
		return
	}
	defer os.RemoveAll(folder)

	name := filepath.Join(folder, "heartbeat")

	for ctx.Err() == nil {
		began := now()

		s.mutex.Lock()
		s.since = began
		s.mutex.Unlock()

		sleep(ctx, heartbeat)
		beat(name)

		if end := now(); time.Duration(end-began) > stalled {
			s.mutex.Lock()
			s.spans = append(s.spans, span{began, end})
			s.mutex.Unlock()
		}
	}
}

// beat writes to the disk. That it does is all that matters.
func beat(name string) {
	if file, err := os.Create(name); err == nil {
		_, _ = file.WriteString("x")
		_ = file.Sync()
		_ = file.Close()
	}
}

// after returns how much of the time from t until now was stalled.
func (s *stalls) after(t instant) (sum time.Duration) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	current := now()

	spans := s.spans
	if time.Duration(current-s.since) > stalled {
		spans = append(spans[:len(spans):len(spans)], span{s.since, current})
	}

	for _, stall := range spans {
		if from := max(stall.from, t); from < stall.to {
			sum += time.Duration(stall.to - from)
		}
	}

	return sum
}

// all returns those that are over.
func (s *stalls) all() []span {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return slices.Clone(s.spans)
}

// elapsed is the time since t without what was stalled.
func (s *stalls) elapsed(t instant) time.Duration { return time.Duration(now()-t) - s.after(t) }
