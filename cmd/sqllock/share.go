package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/sqllock"
)

// inside says whether this process is in the group that ends with the lock.
func (p passed) inside() bool { return p.group == strconv.Itoa(process.OwnGroup()) }

// around are those locks that a run around this one holds, as its environment and the database say alike.
func (f *runFlags) around(ctx context.Context, locker *sqllock.Locker) (around []passed, err error) {
	for _, lock := range passedIn() {
		if !slices.Contains(f.names, lock.name) || slices.ContainsFunc(around, func(inner passed) bool { return inner.name == lock.name }) {
			continue
		}

		holders, err := (looker{Locker: locker}).Holders(ctx, sqllock.Filter{Name: lock.name})
		if err != nil {
			return nil, err
		}

		i := slices.IndexFunc(holders, func(status sqllock.Status) bool { return status.Held() && lock.is(status) })
		if i < 0 {
			continue
		}

		if err := f.shareable(lock, holders[i].Shared); err != nil {
			return nil, err
		}

		around = append(around, lock)
	}

	return around, nil
}

// shareable refuses a name that the run around this one holds, unless it may be
// shared. This run would never get it, and to wait for it would be to wait for its own
// end. Nor would it, beside other readers, get a name alone that the other holds as one.
func (f *runFlags) shareable(lock passed, reads bool) error {
	switch {
	case reads && !f.shared:
		return exitError{exitUsage, fmt.Errorf("lock %q is held by the run around this one as a reader, and a shared lock cannot become exclusive; "+
			"use another name, or --shared --shared-env to read under that lock", lock.name)}
	case !f.sharedEnv:
		return exitError{exitUsage, fmt.Errorf("lock %q is held by the run around this one, which waits for this one to end; "+
			"use another name, or --shared-env to share the lock", lock.name)}
	case !lock.inside():
		return exitError{exitUsage, fmt.Errorf("lock %q is held by the run around this one, whose process group this one has left, "+
			"so that nobody would end its command with the lock", lock.name)}
	default:
		return nil
	}
}
