package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// tick is a flag's point in time. The zero time is none.
type tick struct{ time.Time }

// Set takes a point in time, a date, or how often the job runs: that is the latest time that many since midnight UTC. The
// time is the same on all machines, whatever their zones are.
func (t *tick) Set(text string) error {
	// A date is the name of a day, so it does not matter that it begins at another moment elsewhere.
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", time.DateOnly} {
		at, err := time.Parse(form, text)
		if err != nil {
			continue
		}

		if !at.After(time.Unix(0, 0)) {
			return errors.New("a time that is not after 1970-01-01 00:00 UTC")
		}

		t.Time = at.UTC()

		return nil
	}

	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04"} {
		if at, err := time.Parse(form, text); err == nil {
			return fmt.Errorf("a time without a zone, which is another one on each machine: say %[1]sZ or %[1]s+01:00, or the day alone",
				at.Format("2006-01-02T15:04"))
		}
	}

	var every duration

	if every.Set(text) != nil {
		return errors.New("not a point in time, such as 2026-11-23 or 2026-11-23T02:15Z, nor how often the job runs, such as 1h")
	}

	// Most likely they are a date, or seconds since 1970.
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return errors.New("a number without a unit: say 1h for a job that runs every hour, or a point in time such as 2026-11-23")
	}

	// Others would not begin at the same times on each day.
	if every < duration(time.Second) || 24*time.Hour%time.Duration(every) != 0 {
		return fmt.Errorf("a day cannot be divided into periods of %s: say 1h, or another whole part of 24h, "+
			"or a point in time such as 2026-11-23", time.Duration(every))
	}

	// Truncate counts from a midnight, that of the year 1.
	t.Time = time.Now().UTC().Truncate(time.Duration(every))

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
