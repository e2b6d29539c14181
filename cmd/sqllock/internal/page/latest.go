package page

import (
	"context"
	"sync"
	"time"
)

// latest is the last look at something. It is made again if somebody asks when it is older than that one
// wants. So the database is looked at no more often, however many ask, and not at all while nobody does.
type latest[T any] struct {
	mu    sync.Mutex // held while it is looked: who asks meanwhile gets that answer
	known outcome[T]
	tried time.Time
}

// outcome is what was seen, when, and why there was nothing newer; at is zero if nothing was seen yet.
type outcome[T any] struct {
	value T
	at    time.Time
	err   error
}

// failedAge is how long a look that failed stands for those that others ask for.
const failedAge = 2 * time.Second

// get is what was seen at most age ago. A look lasts as long as limit says, at most. A look that failed is made again sooner, if age is long.
func (l *latest[T]) get(ctx context.Context, age, limit time.Duration, look func(context.Context) (T, error)) outcome[T] {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.known.err != nil {
		age = min(age, failedAge)
	}

	if !l.tried.IsZero() && time.Since(l.tried) < age {
		return l.known
	}

	// It is for the others as well, so it does not end with the one who asked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	value, err := look(ctx)
	l.known.err, l.tried = err, time.Now()

	if err == nil {
		l.known.value, l.known.at = value, l.tried
	}

	return l.known
}
