package opentelemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

// Names of the spans, and of an event.
const (
	// WaitSpan is from the call to the acquisition, or to its end without the lock.
	WaitSpan = "sqllock.wait"
	// HoldSpan is from the acquisition to the end of the release. It has a link to the span of its wait.
	HoldSpan = "sqllock.hold"
	// LostEvent is in the span of the hold, at the moment when the lock was lost.
	LostEvent = "sqllock.lost"
)

// Tracer makes spans for locks that are acquired through it. It is safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
}

// NewTracer returns a tracer.
func NewTracer(provider trace.TracerProvider) *Tracer {
	return &Tracer{tracer: provider.Tracer(scope)}
}

// do is [sqllock.Locker.Do] or [sqllock.Locker.TryDo], or that of package once.
type do func(
	ctx context.Context, name string, f func(ctx context.Context, lock *sqllock.Lock) error, options ...sqllock.LockOption,
) error

// Do is [sqllock.Locker.Do] of the locker, with a span for the wait and one for the hold. Both have the span of ctx as
// their parent, and f runs under that of the hold. That the lock is somebody else's is a result of the wait and no error;
// a loss, or an error of f, is one of the hold.
func (t *Tracer) Do(
	ctx context.Context, locker *sqllock.Locker, name string, f func(ctx context.Context, lock *sqllock.Lock) error,
	options ...sqllock.LockOption,
) error {
	return t.do(ctx, locker, locker.Do, name, f, options)
}

// TryDo is [sqllock.Locker.TryDo] of the locker, with the spans of [Tracer.Do].
func (t *Tracer) TryDo(
	ctx context.Context, locker *sqllock.Locker, name string, f func(ctx context.Context, lock *sqllock.Lock) error,
	options ...sqllock.LockOption,
) error {
	return t.do(ctx, locker, locker.TryDo, name, f, options)
}

// DoOnce is [once.Do] with the spans of [Tracer.Do]. That the job of the tick was done is a result of the wait, tick_done, and no error.
func (t *Tracer) DoOnce(
	ctx context.Context, locker *sqllock.Locker, name string, tick time.Time, f func(ctx context.Context, lock *sqllock.Lock) error,
	options ...sqllock.Option,
) error {
	return t.do(ctx, locker, at(locker, tick, once.Do, options), name, f, nil)
}

// TryDoOnce is [once.TryDo] with the spans of [Tracer.DoOnce].
func (t *Tracer) TryDoOnce(
	ctx context.Context, locker *sqllock.Locker, name string, tick time.Time, f func(ctx context.Context, lock *sqllock.Lock) error,
	options ...sqllock.Option,
) error {
	return t.do(ctx, locker, at(locker, tick, once.TryDo, options), name, f, nil)
}

// doOnce is [once.Do] or [once.TryDo].
type doOnce func(
	ctx context.Context, locker *sqllock.Locker, name string, tick time.Time, f func(ctx context.Context, lock *sqllock.Lock) error,
	options ...sqllock.Option,
) error

// at is such a function for a locker, a tick and some options.
func at(locker *sqllock.Locker, tick time.Time, call doOnce, options []sqllock.Option) do {
	return func(ctx context.Context, name string, f func(context.Context, *sqllock.Lock) error, _ ...sqllock.LockOption) error {
		return call(ctx, locker, name, tick, f, options...)
	}
}

func (t *Tracer) do(
	ctx context.Context, locker *sqllock.Locker, do do, name string, f func(context.Context, *sqllock.Lock) error,
	options []sqllock.LockOption,
) (err error) {
	attributes := trace.WithAttributes(LockKey.String(name), StrategyKey.String(locker.Features().Strategy))
	parent := trace.SpanFromContext(ctx)

	waiting, wait := t.tracer.Start(ctx, WaitSpan, attributes)
	defer wait.End() // a second End does nothing

	var h *hold

	// Also when f panics or calls runtime.Goexit.
	defer func() {
		if h != nil {
			h.end(ctx, err)
		}
	}()

	inside := func(held context.Context, lock *sqllock.Lock) error {
		wait.SetAttributes(ResultKey.String(acquired))
		wait.End()

		held, span := t.tracer.Start(trace.ContextWithSpan(held, parent), HoldSpan, attributes,
			trace.WithAttributes(TokenKey.Int64(lock.Token()), SlotKey.Int(lock.Slot())),
			trace.WithLinks(trace.Link{SpanContext: wait.SpanContext()}))
		h = &hold{span: span, lock: lock}
		h.stop = context.AfterFunc(lock.Context(), func() { h.lost(lock.Err()) }) //nolint:contextcheck // the end of the lock

		return f(held, lock)
	}

	if f == nil {
		inside = nil // which the locker refuses
	}

	err = do(waiting, name, inside, options...)

	if h == nil {
		end := result(err)
		wait.SetAttributes(ResultKey.String(end))

		if end != notAcquired && end != tickDone {
			fail(wait, err)
		}
	}

	return err
}

// hold is the span of a lock that is held.
type hold struct {
	span trace.Span
	lock *sqllock.Lock
	stop func() bool
	once sync.Once
}

// lost tells of the loss, once, if err is one.
func (h *hold) lost(err error) {
	lost := new(sqllock.LostError)
	if !errors.As(err, &lost) {
		return
	}

	h.once.Do(func() {
		h.span.AddEvent(LostEvent, trace.WithAttributes(ReasonKey.String(string(lost.Reason))))
	})
}

// end ends the span after the lock was released. Its error is that of f and the release.
func (h *hold) end(ctx context.Context, err error) {
	h.stop()

	// What the release returned: it may be the first to find a loss. Another Release does nothing.
	h.lost(h.lock.Release(ctx))

	if err != nil {
		fail(h.span, err)
	}

	h.span.End()
}

// fail lets a span end with an error.
func fail(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
