package opentelemetry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	locks "github.com/sqllock/sqllock/adapters/opentelemetry"
	"github.com/sqllock/sqllock/internal/filelock"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
)

var errWork = errors.New("the work failed")

// newTracer returns a tracer, what records its spans, and a context with a span.
func newTracer(t *testing.T) (*locks.Tracer, *tracetest.SpanRecorder, context.Context) {
	t.Helper()

	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))

	ctx, cancel := context.WithTimeout(t.Context(), filelock.Deadline)
	t.Cleanup(cancel)

	ctx, parent := provider.Tracer("test").Start(ctx, "parent")
	t.Cleanup(func() { parent.End() })

	return locks.NewTracer(provider), recorder, ctx
}

// spans returns the spans that have ended, of which there must be so many. All must be children of ctx's.
func spans(t *testing.T, ctx context.Context, recorder *tracetest.SpanRecorder, n int) []sdktrace.ReadOnlySpan {
	t.Helper()

	ended := recorder.Ended()
	if len(ended) != n {
		t.Fatalf("%d spans have ended, want %d", len(ended), n)
	}

	for _, span := range ended {
		if span.Parent().SpanID() != trace.SpanContextFromContext(ctx).SpanID() {
			t.Errorf("the parent of %s is %s", span.Name(), span.Parent().SpanID())
		}
	}

	return ended
}

func expectSpan(t *testing.T, span sdktrace.ReadOnlySpan, name string, status codes.Code, want ...attribute.KeyValue) {
	t.Helper()

	got := attribute.NewSet(span.Attributes()...)
	all := attribute.NewSet(append(want, locks.LockKey.String("name"), locks.StrategyKey.String("cas"))...)

	if span.Name() != name || span.Status().Code != status || !got.Equals(&all) {
		t.Errorf("span %s, status %v, %v\nwant %s, status %v, %v", span.Name(), span.Status(), got.ToSlice(), name, status, all.ToSlice())
	}
}

func TestDo(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	locker, other := filelock.NewLocker(t, file), filelock.NewLocker(t, file)
	tracer, recorder, ctx := newTracer(t)

	theirs := filelock.Acquire(t, other, "name")
	done := make(chan error, 1)

	var (
		token  int64
		inside trace.SpanContext
	)

	go func() {
		done <- tracer.Do(ctx, locker, "name", func(ctx context.Context, lock *sqllock.Lock) error {
			token, inside = lock.Token(), trace.SpanContextFromContext(ctx)

			return ctx.Err()
		})
	}()

	filelock.UntilWaiting(t, other, "name", 1)
	filelock.Release(t, theirs)

	if err := <-done; err != nil {
		t.Fatal(err)
	}

	ended := spans(t, ctx, recorder, 2)
	wait, hold := ended[0], ended[1]

	expectSpan(t, wait, "sqllock.wait", codes.Unset, locks.ResultKey.String("acquired"))
	expectSpan(t, hold, "sqllock.hold", codes.Unset, locks.TokenKey.Int64(token), locks.SlotKey.Int(0))

	if links := hold.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != wait.SpanContext().SpanID() {
		t.Errorf("the links of the hold are %v, want one to its wait", links)
	}

	if inside.SpanID() != hold.SpanContext().SpanID() {
		t.Error("the function does not run under the span of the hold")
	}

	if !wait.EndTime().After(wait.StartTime()) || hold.StartTime().Before(wait.EndTime()) {
		t.Errorf("wait from %s to %s, hold from %s", wait.StartTime(), wait.EndTime(), hold.StartTime())
	}
}

func TestDoOfError(t *testing.T) {
	t.Parallel()

	locker := filelock.NewLocker(t, filelock.NewFile(t))
	tracer, recorder, ctx := newTracer(t)

	err := tracer.TryDo(ctx, locker, "name", func(context.Context, *sqllock.Lock) error { return errWork })
	if !errors.Is(err, errWork) {
		t.Errorf("TryDo = %v, want %v", err, errWork)
	}

	hold := spans(t, ctx, recorder, 2)[1]
	if hold.Status().Code != codes.Error || hold.Status().Description != errWork.Error() {
		t.Errorf("status = %v, want an error", hold.Status())
	}
}

func TestNotAcquired(t *testing.T) {
	t.Parallel()

	file := filelock.NewFile(t)
	locker, other := filelock.NewLocker(t, file), filelock.NewLocker(t, file)
	tracer, recorder, ctx := newTracer(t)
	f := func(context.Context, *sqllock.Lock) error { return errWork }

	defer filelock.Release(t, filelock.Acquire(t, other, "name"))

	if err := tracer.TryDo(ctx, locker, "name", f); !errors.Is(err, sqllock.ErrNotAcquired) {
		t.Errorf("TryDo = %v, want ErrNotAcquired", err)
	}

	if err := locker.Close(ctx); err != nil {
		t.Fatal(err)
	}

	if err := tracer.Do(ctx, locker, "name", f); !errors.Is(err, sqllock.ErrClosed) {
		t.Errorf("Do = %v, want ErrClosed", err)
	}

	if err := tracer.Do(ctx, locker, "name", nil); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Do of nil = %v, want ErrInvalidOption", err)
	}

	ended := spans(t, ctx, recorder, 3)
	expectSpan(t, ended[0], "sqllock.wait", codes.Unset, locks.ResultKey.String("not_acquired"))
	expectSpan(t, ended[1], "sqllock.wait", codes.Error, locks.ResultKey.String("closed"))
	expectSpan(t, ended[2], "sqllock.wait", codes.Error, locks.ResultKey.String("error"))
}

func TestLoss(t *testing.T) {
	t.Parallel()

	for name, untilLost := range map[string]bool{"found by a renewal": true, "found by the release": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			file := filelock.NewFile(t)
			locker, other := filelock.NewLocker(t, file, sqllock.WithTuning(sqllock.Tuning{NoHandOff: true})), filelock.NewLocker(t, file)
			tracer, recorder, ctx := newTracer(t)

			err := tracer.Do(ctx, locker, "name", func(held context.Context, lock *sqllock.Lock) error {
				if err := sqllocktest.ForceRelease(ctx, other, "name", "for a test"); err != nil {
					return err
				}

				if untilLost {
					_ = lock.Check(ctx)
					<-held.Done()
				}

				return nil
			})
			if !errors.Is(err, sqllock.ErrLost) {
				t.Fatalf("Do = %v, want ErrLost", err)
			}

			hold := spans(t, ctx, recorder, 2)[1]
			if hold.Status().Code != codes.Error {
				t.Errorf("status = %v, want an error", hold.Status())
			}

			var reasons []string

			for _, event := range hold.Events() {
				if event.Name == "sqllock.lost" {
					set := attribute.NewSet(event.Attributes...)
					reason, _ := set.Value(locks.ReasonKey)
					reasons = append(reasons, reason.AsString())
				}
			}

			if len(reasons) != 1 || reasons[0] != "forced" {
				t.Errorf("the events of a loss have the reasons %q, want one: forced", reasons)
			}
		})
	}
}

// Spans end also if the work panics.
func TestPanic(t *testing.T) {
	t.Parallel()

	locker := filelock.NewLocker(t, filelock.NewFile(t))
	tracer, recorder, ctx := newTracer(t)

	func() {
		defer func() { _ = recover() }()

		_ = tracer.Do(ctx, locker, "name", func(context.Context, *sqllock.Lock) error { panic("for a test") })
	}()

	spans(t, ctx, recorder, 2)
}

// That a job was done is a result, and no error.
func TestDoOnce(t *testing.T) {
	t.Parallel()

	locker := filelock.NewLocker(t, filelock.NewFile(t))
	tracer, recorder, ctx := newTracer(t)
	tick := time.Date(2026, time.January, 2, 0, 0, 0, 0, time.UTC)
	ran, token := 0, int64(0)

	job := func(ctx context.Context, lock *sqllock.Lock) error {
		ran++
		token = lock.Token()

		return ctx.Err()
	}

	if err := tracer.DoOnce(ctx, locker, "name", tick, job); err != nil {
		t.Errorf("DoOnce() = %v, want nil", err)
	}

	for what, call := range map[string]func() error{
		"DoOnce()":    func() error { return tracer.DoOnce(ctx, locker, "name", tick, job) },
		"TryDoOnce()": func() error { return tracer.TryDoOnce(ctx, locker, "name", tick, job) },
	} {
		if err := call(); !errors.Is(err, once.ErrDone) {
			t.Errorf("%s of a job that was done = %v, want ErrDone", what, err)
		}
	}

	if ran != 1 {
		t.Errorf("the job ran %d times, want once", ran)
	}

	ended := spans(t, ctx, recorder, 4)
	expectSpan(t, ended[0], locks.WaitSpan, codes.Unset, locks.ResultKey.String("acquired"))
	expectSpan(t, ended[1], locks.HoldSpan, codes.Unset, locks.TokenKey.Int64(token), locks.SlotKey.Int(0))
	expectSpan(t, ended[2], locks.WaitSpan, codes.Unset, locks.ResultKey.String("tick_done"))
	expectSpan(t, ended[3], locks.WaitSpan, codes.Unset, locks.ResultKey.String("tick_done"))
}
