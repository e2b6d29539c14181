package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
	"github.com/sqllock/sqllock/sqllock"
)

// The variables that tell the command of its locks. The first one's have these
// names, those that follow _2 and so on behind. Slots are numbered by themselves: only
// names with permits have one.
const (
	nameVariable  = "SQLLOCK_NAME"
	tokenVariable = "SQLLOCK_TOKEN"
	ownerVariable = "SQLLOCK_OWNER"
	slotVariable  = "SQLLOCK_SLOT"
	// holderVariable is which of the readers of a shared lock it is, who all have the same owner.
	holderVariable = "SQLLOCK_HOLDER"
	// groupVariable is the process group that ends with the lock.
	groupVariable = "SQLLOCK_GROUP"
	// newGroup stands for that of the command, until there is one.
	newGroup = "new"
)

// ours are these variables in an environment, and none of the user's that begin
// alike.
var ours = regexp.MustCompile(`^(` + nameVariable + `|` + tokenVariable + `|` + ownerVariable + `|` + slotVariable + `|` + holderVariable + `|` + groupVariable + `)(_\d+)?=`)

// passed is a lock as the environment tells of it.
type passed struct{ name, token, owner, group, holder string }

// is says whether it is the lock of a status.
func (p passed) is(status sqllock.Status) bool {
	if status.Shared {
		return strconv.FormatInt(status.Token, 10) == p.token && processOf(status.Holder) == p.holder
	}

	return status.Owner == p.owner
}

// processOf tells the process of a holder from those of others.
func processOf(holder sqllock.Holder) string { return fmt.Sprintf("%d@%s", holder.PID, holder.Host) }

// passedIn are the locks of the runs around this one, the innermost first.
func passedIn() []passed {
	var locks []passed

	for i := 1; ; i++ {
		lock := passed{
			os.Getenv(numbered(nameVariable, i)), os.Getenv(numbered(tokenVariable, i)), os.Getenv(numbered(ownerVariable, i)),
			os.Getenv(numbered(groupVariable, i)), os.Getenv(numbered(holderVariable, i)),
		}
		if lock.name == "" {
			return locks
		}

		locks = append(locks, lock)
	}
}

// ownersIn are the owners of the locks of the runs around this one, the innermost first.
func ownersIn() (owners []string) {
	for _, lock := range passedIn() {
		if lock.owner != "" {
			owners = append(owners, lock.owner)
		}
	}

	return owners
}

// numbered is a variable's name for the lock of a number.
func numbered(variable string, number int) string {
	if number == 1 {
		return variable
	}

	return fmt.Sprintf("%s_%d", variable, number)
}

// environment is this process's, with the locks in the order of the flags, and
// behind them those of the runs around this one.
func (f *runFlags) environment(h *held) []string {
	env := slices.DeleteFunc(os.Environ(), ours.MatchString)

	var (
		locks  []passed
		slots  []string
		holder string // which of the readers this process is, if it is one
	)

	if f.shared {
		holder = processOf(thisProcess())
	}

	for _, name := range f.names {
		lock := h.lock(name)
		locks = append(locks, passed{name, strconv.FormatInt(lock.TokenOf(name), 10), lock.OwnerOf(name), newGroup, holder})

		if f.given("permits") {
			slots = append(slots, strconv.Itoa(lock.Slot()))
		}
	}

	for i, lock := range passedIn() {
		// The group of the command ends when this process does, and so with those locks
		// that this process ends with.
		if lock.inside() {
			lock.group = newGroup
		} else {
			lock.group = ""
		}

		locks = append(locks, lock)

		// The slot of that number need not be this lock's, but a lock has one at most.
		if slot := os.Getenv(numbered(slotVariable, i+1)); slot != "" {
			slots = append(slots, slot)
		}
	}

	for i, lock := range locks {
		env = append(env, numbered(nameVariable, i+1)+"="+lock.name, numbered(tokenVariable, i+1)+"="+lock.token,
			numbered(ownerVariable, i+1)+"="+lock.owner, numbered(groupVariable, i+1)+"="+lock.group)

		if lock.holder != "" {
			env = append(env, numbered(holderVariable, i+1)+"="+lock.holder)
		}
	}

	for i, slot := range slots {
		env = append(env, numbered(slotVariable, i+1)+"="+slot)
	}

	return env
}

// nameGroup puts the group of this process, which will be the command, where it was
// not known yet.
func nameGroup() error {
	for i, lock := range passedIn() {
		if lock.group != newGroup {
			continue
		}

		if err := os.Setenv(numbered(groupVariable, i+1), strconv.Itoa(process.OwnGroup())); err != nil {
			return err
		}
	}

	return nil
}

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
