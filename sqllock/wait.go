package sqllock

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// pause waits until the next attempt makes sense, and says whether wait allows
// one. held is nil if the last attempt had no answer.
func (a *acquisition) pause(wait context.Context, held *HeldError, bell <-chan struct{}) bool {
	// First the ear, then the note, then sleep: a release after the note is heard,
	// and one before it is found out by the note.
	listening := a.set.listens && a.locker.ear.hears()

	if held != nil && held.Token != a.seen {
		a.since = time.Now()
		a.sees(held.Token)
	}

	pause := a.between(time.Since(a.since))

	if held == nil {
		// Few attempts without an answer are made, so that they are not all over
		// before a connection can be had again.
		pause = backoff(a.attempts, max(a.set.pollMin, defaultPollMin), max(a.set.pollMax, defaultPollMin))
	}

	// Nobody tells of the end of a guard, after which nobody holds the name.
	if held != nil && held.Remaining > 0 && a.register(wait) && listening {
		pause = max(pause, listenedPoll-jitter(listenedPoll/2))
	}

	if held != nil && held.Remaining > 0 {
		// When the holder is dead its lease ends then.
		pause = min(pause, held.Remaining+jitter(a.set.pollMin))
	}

	timer := time.NewTimer(pause)
	defer timer.Stop()

	a.request.Waiting = held != nil

	select {
	case <-timer.C:
		return true
	case <-bell:
		a.since, a.request.Waiting = time.Now(), false

		return sleep(wait, a.giveWay())
	case <-wait.Done():
		return false
	}
}

// sees notes that the lock went to another holder, so that it will again, soon.
func (a *acquisition) sees(token int64) {
	a.seen = token
	a.changes++
}

// between returns how long to wait between two questions, for who has waited for
// so long since the lock last changed hands.
//
// The more rivals there are, the more rarely each asks. Their number is learned from
// how often the lock changes hands in a wait, and in those before. By this one alone
// it would be larger the longer the wait, and who has waited for long would never
// have a turn beside those who begin to; so that counts for less the longer it is.
func (a *acquisition) between(waited time.Duration) time.Duration {
	changes := float64(a.changes)
	rivals := min(max(a.rivals, changes), a.rivals+fewRivals+math.Sqrt(changes))
	lowest := min(time.Duration(float64(a.set.pollMin)*max(1, rivals)), a.set.pollMax)

	return pollPause(waited, lowest, a.set.pollMax)
}

// fewRivals is how many more than were known of are believed in at once.
const fewRivals = 4

// learned is the number of rivals, after a wait in which the lock changed hands so
// often. Among equals it does so as often as there are rivals, in the mean; a long
// wait may be bad luck.
func learned(rivals float64, changes int) float64 {
	return rivals + (min(float64(changes), 2*rivals+fewRivals)-rivals)/4
}

// pollPause returns how long to wait before the next question, for who has waited
// for a lock for so long: below a bound that is an eighth of that time when it has
// been long, and a smaller part when it has not. Most locks are held for a moment,
// and what is asked then is over soon.
func pollPause(waited, lowest, highest time.Duration) time.Duration {
	const long = 500 * time.Millisecond

	part := float64(waited) / float64(waited+long) / 8
	bound := float64(lowest) + part*float64(waited)

	return jitter(time.Duration(min(bound, float64(highest))))
}

// giveWay notes that the name may be free, and returns how long others may go
// first: those who did not have the lock as lately as this process, and some of
// those who heard of many in vain.
func (a *acquisition) giveWay() time.Duration {
	a.rung++

	switch {
	case a.rung < fewRings && time.Now().Before(a.polite):
		return time.Duration(fewRings-a.rung) * politeness / 8
	case a.rung > 2*fewRings:
		// Half of them at once: otherwise all turns would go to those who begin to wait.
		spread := min(time.Duration(a.rung)*time.Millisecond, maxSpread)

		return max(0, rand.N(2*spread)-spread)
	default:
		return 0
	}
}

const (
	// fewRings is how many releases may be heard of in vain where few wait.
	fewRings = 3
	// maxSpread bounds the time over which many try after a release.
	maxSpread = 20 * time.Millisecond
)

// register sees to it that the database knows of the wait, and says whether it
// does.
func (a *acquisition) register(wait context.Context) bool {
	l, name := a.locker, a.request.Name

	if l.ear.notifier == nil {
		return false
	}

	if l.ear.isNoted(name) {
		return true
	}

	asked := time.Now()
	ctx, cancel := context.WithTimeout(wait, a.longest())

	defer cancel()

	registered, err := awaited(l, func(late func(bool, error)) (bool, error) {
		return within(ctx, func(ctx context.Context) (bool, error) {
			return l.ear.notifier.Register(ctx, name, registration)
		}, late)
	}, func(bool, error) {})
	if err != nil || !registered {
		return false
	}

	l.ear.note(name, asked.Add(registration))

	return true
}
