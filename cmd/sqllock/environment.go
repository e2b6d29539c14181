package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/sqllock"
)

// The variables that tell the command of its locks. The first one's have these
// names, those that follow _2 and so on behind.
const (
	nameVariable  = "SQLLOCK_NAME"
	tokenVariable = "SQLLOCK_TOKEN"
	ownerVariable = "SQLLOCK_OWNER"
)

// passed is a lock as the environment tells of it.
type passed struct{ name, token, owner string }

// passedIn are the locks of the runs around this one, the innermost first.
func passedIn(getenv func(string) string) []passed {
	var locks []passed

	for i := 1; ; i++ {
		lock := passed{getenv(numbered(nameVariable, i)), getenv(numbered(tokenVariable, i)), getenv(numbered(ownerVariable, i))}
		if lock.name == "" {
			return locks
		}

		locks = append(locks, lock)
	}
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
	var env []string

	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, nameVariable) && !strings.HasPrefix(pair, tokenVariable) &&
			!strings.HasPrefix(pair, ownerVariable) {
			env = append(env, pair)
		}
	}

	locks := make([]passed, 0, len(f.names))

	for _, name := range f.names {
		lock := h.lock(name)
		locks = append(locks, passed{name, strconv.FormatInt(lock.Token(), 10), lock.Owner()})
	}

	for i, lock := range append(locks, passedIn(os.Getenv)...) {
		env = append(env, numbered(nameVariable, i+1)+"="+lock.name, numbered(tokenVariable, i+1)+"="+lock.token,
			numbered(ownerVariable, i+1)+"="+lock.owner)
	}

	return env
}

// heldOutside says whether a run around this one holds the name, as its
// environment and the database say alike.
func heldOutside(ctx context.Context, locker *sqllock.Locker, name string) (bool, error) {
	for _, lock := range passedIn(os.Getenv) {
		if lock.name != name {
			continue
		}

		holder, err := locker.Inspect(ctx, name)
		if errors.Is(err, sqllock.ErrNotHeld) {
			return false, nil
		}

		return err == nil && holder.Owner == lock.owner, err
	}

	return false, nil
}
