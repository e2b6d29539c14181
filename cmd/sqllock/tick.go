package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// tick is a flag's point in time.
type tick struct{ time.Time }

// tickKept is for how long a tick is remembered at least.
const tickKept = 366 * 24 * time.Hour

// Set takes a time, or how often the job runs: that is the latest time that many since midnight UTC.
func (t *tick) Set(text string) error {
	for _, form := range []string{
		time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly,
	} {
		// Local, as cron's times are, where it has no zone.
		if at, err := time.ParseInLocation(form, text, time.Local); err == nil {
			t.Time = at

			return nil
		}
	}

	var every duration

	if err := every.Set(text); err != nil {
		return errors.New("not a point in time, such as 2026-11-23 or 2026-11-23T02:15, nor how often the job runs, such as 1h")
	}

	// Most likely they are a date, or seconds since 1970.
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return errors.New("a number without a unit: say 1h for a job that runs every hour, or a point in time such as 2026-11-23")
	}

	if every < duration(time.Second) || every > duration(tickKept) {
		return fmt.Errorf("the job cannot run every %s: from 1s to %dh, for as long as a tick is remembered", time.Duration(every), tickKept/time.Hour)
	}

	t.Time = time.Now().Truncate(time.Duration(every))

	return nil
}

// String is empty without a tick, so that help shows no default.
func (t *tick) String() string {
	if t.IsZero() {
		return ""
	}

	return t.Format(time.RFC3339)
}

// Type is what help calls the value.
func (*tick) Type() string { return "time" }
