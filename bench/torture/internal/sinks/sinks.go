// Package sinks has the things that the locks protect: a row of a database and a file. Each write is numbered in the order in which
// it took effect.
package sinks

import (
	"context"
	"errors"
)

// ErrRefused reports that a write had a smaller token than one before it.
var ErrRefused = errors.New("refused: the token is smaller than one that was seen")

// Sink is a protected thing. One that checks tokens refuses a smaller one than the largest that it has seen.
type Sink interface {
	// Write returns the number of the write: one more than that of the write before it, by whomever.
	Write(ctx context.Context, token int64) (int64, error)
	Close()
}
