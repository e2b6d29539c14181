package sqllocktest

import (
	"context"

	"github.com/sqllock/sqllock/sqllock"
)

// ForceRelease takes a lock away from whoever holds it now, to see what a program does about that: it looks, and calls
// [sqllock.Locker.ForceRelease]. Of a name with permits it takes the first.
func ForceRelease(ctx context.Context, l *sqllock.Locker, name, reason string) error {
	seen, err := l.Inspect(ctx, name)
	if err != nil {
		return err
	}

	return l.ForceRelease(ctx, seen, reason)
}
