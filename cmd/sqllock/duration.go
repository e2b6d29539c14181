package main

import (
	"errors"
	"math"
	"strconv"
	"time"
)

// duration is a flag's value: a number of seconds, as flock takes it, or one
// with units, as Go writes it.
type duration time.Duration

// Set reads "5", "0.5" or "1m30s".
func (d *duration) Set(text string) error {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		// A conversion of such a number makes any of it.
		if math.IsNaN(seconds) || math.Abs(seconds) >= math.MaxInt64/float64(time.Second) {
			return errors.New("not a duration, or too long a one")
		}

		*d = duration(seconds * float64(time.Second))

		return nil
	}

	parsed, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("not a duration; write seconds (5, 0.5) or units (90s, 1m30s)")
	}

	*d = duration(parsed)

	return nil
}

// String is the value with units; empty for zero, so that help shows no
// default.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}

	return time.Duration(*d).String()
}

// Type is what help calls it.
func (*duration) Type() string { return "duration" }
