//go:build unix

package stress

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sqllock/sqllock/sqllock"
)

// claims is the folder where the workers of a round leave the claims of locks that they have detached.
func (w *worker) claims() string { return filepath.Join(filepath.Dir(w.Log), "claims") }

// detach leaves the lock to whoever adopts it first, in this process or in another. It has ended then in any case.
func (u *user) detach(ctx context.Context) {
	lease := u.between(u.Lease/4, u.Lease)

	r := u.call(opRelease)
	claim, err := u.lock.Detach(ctx, lease)
	r.Until = now() + instant(lease)
	r.Detached = err == nil
	u.answered(r, err)

	if err != nil {
		return
	}

	if err := u.leaveClaim(claim); err != nil {
		u.log.write(record{Time: now(), Failed: "leave a claim: " + err.Error()})
	}
}

// leaveClaim writes a claim where others find it, and whole.
func (u *user) leaveClaim(claim sqllock.Claim) error {
	if err := os.MkdirAll(u.claims(), 0o700); err != nil {
		return err
	}

	file, err := os.CreateTemp(u.claims(), "*.new")
	if err != nil {
		return err
	}

	_, err = file.WriteString(claim.Secret())

	return errors.Join(err, file.Close(), os.Rename(file.Name(), file.Name()+claimFile))
}

const claimFile = ".claim"

// adopt adopts a lock that somebody has detached, if there is one. Others may try it, too: they leave the claim there until one of
// them knows that it is good for nothing more.
func (u *user) adopt(ctx context.Context) (got outcome, tried bool) {
	files, err := filepath.Glob(filepath.Join(u.claims(), "*"+claimFile))
	if err != nil || len(files) == 0 {
		return outcomeNo, false
	}

	file := files[u.random.IntN(len(files))]

	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return outcomeNo, false
	}

	var claim sqllock.Claim

	if err == nil {
		claim, err = sqllock.ParseClaim(string(text))
	}

	if err != nil {
		u.log.write(record{Time: now(), Failed: "read a claim: " + err.Error()})

		return outcomeNo, false
	}

	ctx, cancel := context.WithTimeout(ctx, 3*u.Lease)
	defer cancel()

	u.name, u.adopts = claim.Name(), true
	defer func() { u.adopts = false }()

	r := u.call(opAcquire)
	lock, err := u.locker.Adopt(ctx, claim)

	if err == nil || errors.Is(err, sqllock.ErrLost) {
		_ = os.Remove(file)
	}

	switch {
	case err == nil:
		return u.granted(r, lock), true
	case errors.Is(err, sqllock.ErrLost):
		u.done(r, outcomeNo, err)

		return outcomeNo, true
	default:
		return u.refused(ctx, r, err), true
	}
}
