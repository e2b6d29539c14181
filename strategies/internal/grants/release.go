package grants

import (
	"errors"

	"github.com/sqllock/sqllock/strategies"
)

// Outcome is what became of the release of a lock that a session holds beside its
// record, over all attempts at it.
type Outcome struct {
	Freed    bool  // by the release, until which the session had the lock
	Recorded bool  // the record is released, or lost
	Err      error // of the release: the loss it found
}

// Note keeps what became of the record, if err tells.
func (o *Outcome) Note(err error) {
	lost := new(strategies.LostError)
	if err != nil && !errors.As(err, &lost) {
		return
	}

	// A successor that came after the session gave the lock back took nothing away.
	if err != nil && o.Freed && lost.Reason == strategies.TakenOver {
		err = nil
	}

	o.Recorded = true

	// An operator who forces a release ends the session, too.
	if err != nil && (o.Err == nil || lost.Reason == strategies.Forced) {
		o.Err = err
	}
}
