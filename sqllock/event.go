package sqllock

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// kind is what an event is about.
type kind int

const (
	eventAcquired kind = iota
	eventNotAcquired
	eventRenewed
	eventPartlyRenewed // for the first time, and not everywhere
	eventRenewalFailed
	eventLost
	eventReleased
)

// note tells the hooks of an event and logs it. Both may block: where others wait,
// it is added to the events instead.
func (l *Locker) note(set *settings, k kind, e Event) {
	e.Strategy = l.features.Strategy

	for _, hooks := range *set.hooks {
		if hook := hooks.of(k); hook != nil {
			hook(e)
		}
	}

	level, message := k.said(e.Err)
	log(set.logger, level, message, e)
}

// said is what the log says of an event.
func (k kind) said(err error) (slog.Level, string) {
	switch {
	case k == eventAcquired:
		return slog.LevelDebug, "lock acquired"
	case k == eventNotAcquired:
		return slog.LevelDebug, "lock not acquired"
	case k == eventRenewed:
		return slog.LevelDebug, "lock renewed"
	case k == eventPartlyRenewed:
		return slog.LevelWarn, "lock renewed, but not on all servers"
	case k == eventRenewalFailed:
		return slog.LevelWarn, "lock not renewed, trying again"
	case k == eventLost:
		return slog.LevelWarn, "lock lost"
	case err == nil:
		return slog.LevelDebug, "lock released"
	case errors.Is(err, ErrLost):
		return slog.LevelWarn, "lock was lost before its release"
	default:
		return slog.LevelWarn, "lock not released, trying again"
	}
}

// log writes what applies of an event. The logger's handler gets no caller's
// context: many events have none.
func log(logger *slog.Logger, level slog.Level, message string, e Event) {
	ctx := context.Background() //nolint:forbidigo // see above
	if !logger.Enabled(ctx, level) {
		return
	}

	attrs := []slog.Attr{slog.String("name", e.Name), slog.String("strategy", e.Strategy)}

	if e.Token != 0 {
		attrs = append(attrs, slog.Int64("token", e.Token))
	}

	if e.Slot != 0 {
		attrs = append(attrs, slog.Int("slot", e.Slot))
	}

	if e.Attempts != 0 {
		attrs = append(attrs, slog.Int("attempts", e.Attempts), slog.Duration("waited", e.Waited))
	}

	if e.HeldFor != 0 {
		attrs = append(attrs, slog.Duration("held_for", e.HeldFor))
	}

	if e.Remaining != 0 {
		attrs = append(attrs, slog.Duration("remaining", e.Remaining.Round(time.Millisecond)))
	}

	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}

	logger.LogAttrs(ctx, level, message, attrs...)
}
