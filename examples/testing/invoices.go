// Package testing shows how to test code that takes locks, without a database:
// the code is in this file, its tests are in the other.
//
//	go test -v ./examples/testing
package testing

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/sqllock"
)

// Invoices writes the invoices of a month, one process at a time. It is given
// its locker, so that a test can give it another.
type Invoices struct {
	Locker *sqllock.Locker
	// Write writes one invoice and stops when ctx ends. It guards its transaction with the lock.
	Write func(ctx context.Context, number int, lock *sqllock.Lock) error
}

// ErrRunning says that another process writes the month's invoices.
var ErrRunning = errors.New("the invoices of this month are being written")

// Run writes a month's invoices.
func (i *Invoices) Run(ctx context.Context, month string, count int) error {
	err := i.Locker.TryDo(ctx, "invoices/"+month, func(ctx context.Context, lock *sqllock.Lock) error {
		for number := range count {
			if err := i.Write(ctx, number, lock); err != nil {
				return fmt.Errorf("invoice %d: %w", number, err)
			}
		}

		return nil
	})
	if errors.Is(err, sqllock.ErrNotAcquired) {
		return fmt.Errorf("%w: %w", ErrRunning, err)
	}

	return err
}
