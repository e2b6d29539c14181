package sqllock

import (
	"context"
	"log/slog"
	"time"
)

// kind is what an event is about.
type kind int

const (
	eventAcquired kind = iota
	eventNotAcquired
	eventRenewed
	eventRenewalFailed
	eventLost
	eventReleased
)

// note tells the hook of an event and logs it. Both may block: where others wait,
// news is told instead.
func (l *Locker) note(set *settings, k kind, e Event) {
	e.Strategy = l.features.Strategy

	switch k {
	case eventAcquired:
		call(set.hooks.Acquired, e)
		log(set.logger, slog.LevelDebug, "lock acquired", e)
	case eventNotAcquired:
		call(set.hooks.NotAcquired, e)
		log(set.logger, slog.LevelDebug, "lock not acquired", e)
	case eventRenewed:
		call(set.hooks.Renewed, e)
		log(set.logger, slog.LevelDebug, "lock renewed", e)
	case eventRenewalFailed:
		call(set.hooks.RenewalFailed, e)
		log(set.logger, slog.LevelWarn, "lock not renewed, trying again", e)
	case eventLost:
		call(set.hooks.Lost, e)
		log(set.logger, slog.LevelWarn, "lock lost", e)
	case eventReleased:
		call(set.hooks.Released, e)

		level := slog.LevelDebug
		if e.Err != nil {
			level = slog.LevelWarn
		}

		log(set.logger, level, "lock released", e)
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
