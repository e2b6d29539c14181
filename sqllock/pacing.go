package sqllock

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// pacing says when a waiting acquisition asks the database again.
//
// Processes contend at random. A waiter asks the more often the shorter it has waited
// since the lock last changed hands, and the more rarely the more others contend, whose
// number it learns from how often the lock changes hands. Where the database tells of
// releases it asks then, and rarely besides. A process that had the lock last lets
// others go first.
type pacing struct {
	locker *Locker
	set    *settings
	name   string

	since   time.Time // when it began, was heard that the name may be free, or changed hands
	rung    int       // how often it was heard
	woken   bool      // the last attempt was made because it was heard
	vain    int       // how often in a row that was not true
	polite  time.Time // until when others go first, for whom this process had the name
	seen    int64     // the holder's token at the last attempt
	changes int       // how often that was another
	rivals  float64   // how many others contend for the name, by earlier waits
	waiting bool      // the name was held, and nothing was heard of its release since

	calls       <-chan struct{} // wake-ups; nil before the name is found held, or if there are none
	unsubscribe func()
}

// enter takes what earlier waits in this process know, and lets others go first if they
// waited while this process had the name. It says whether wait allows that.
func (p *pacing) enter(wait context.Context, polite, try bool, rivals float64) bool {
	p.rivals, p.since = rivals, time.Now()

	if !polite || try || endsWithin(wait, 2*politeness) {
		return true
	}

	p.polite = time.Now().Add(rememberCrowd)

	return sleep(wait, politeness)
}

// learn teaches later waits in this process how many others contend.
func (p *pacing) learn() { p.locker.queue.learn(p.name, p.changes) }

// gaveUp is learn for a wait that ended in vain: there are as many rivals at least.
func (p *pacing) gaveUp() {
	if float64(p.changes) > p.rivals {
		p.learn()
	}
}

// pause waits until the next attempt makes sense, and says whether wait allows
// one. held is nil if the last attempt had no answer; attempts is how many were before.
func (p *pacing) pause(wait context.Context, attempts int, held *HeldError) bool {
	if p.unsubscribe == nil && held != nil && p.set.listens && p.subscribe() {
		p.waiting = true

		return true
	}

	// First listen, then register, then sleep: a release after the registration is
	// heard of, and one before it makes the registration fail.
	listening := p.set.listens && p.locker.listener.hears()

	began := time.Now()

	switch {
	case held == nil:
	case held.Token != p.seen:
		p.since, p.vain = began, 0
		p.sees(held.Token)
	case p.woken:
		p.vain++
	default:
		p.vain = 0
	}

	p.woken = false

	pause := p.between(time.Since(p.since))

	if held == nil {
		// Few attempts without an answer are made, so that they are not all over
		// before a connection can be had again.
		pause = backoff(attempts, max(p.set.pollMin, defaultPollMin), max(p.set.pollMax, defaultPollMin))
	}

	// Nobody tells of the end of a guard, after which nobody holds the name.
	if held != nil && held.Remaining > 0 && p.register(wait) && listening {
		pause = max(pause, slowestPoll-jitter(slowestPoll/2))
	}

	if held != nil && held.Remaining > 0 {
		// When the holder is dead its lease ends then.
		pause = min(pause, held.Remaining+jitter(p.set.pollMin))
	}

	timer := time.NewTimer(pause)
	defer timer.Stop()

	p.waiting = held != nil

	select {
	case <-timer.C:
		return true
	case <-p.calls:
		return p.wake(wait, began)
	case <-wait.Done():
		return false
	}
}

// subscribe listens for the release of the name, and says whether one may have been
// missed.
func (p *pacing) subscribe() (missed bool) {
	p.calls, p.unsubscribe = p.locker.listener.subscribe(p.name)

	return p.locker.listener.mayHaveMissed(p.name)
}

// end stops listening.
func (p *pacing) end() {
	if p.unsubscribe != nil {
		p.unsubscribe()
	}
}

// wake waits until an attempt makes sense for who heard that the name may be free,
// and began to listen for that at some time. It says whether wait allows one.
//
// Anybody who may connect to the database can say so, falsely. Then the same holder
// is found again, which never comes of a release. The more often in a row, the
// longer since the last attempt it must be: in the end it is as if nobody were told.
func (p *pacing) wake(wait context.Context, began time.Time) bool {
	p.woken = true

	if p.vain == 0 {
		p.since, p.waiting = time.Now(), false

		return sleep(wait, p.giveWay())
	}

	if !sleep(wait, disbelief(p.vain)-time.Since(began)) {
		return false
	}

	// The attempt is the answer to what was heard until now.
	select {
	case <-p.calls:
	default:
	}

	return true
}

// disbelief is how long after an attempt the next one is made for who was told so
// often in a row of a release that there was not.
func disbelief(vain int) time.Duration { return min(defaultPoll<<min(vain, 10), defaultPollMax) }

// sees notes that the lock went to another holder, so that it will again, soon.
func (p *pacing) sees(token int64) {
	p.seen = token
	p.changes++
}

// between returns how long to wait between two questions, for who has waited for
// so long since the lock last changed hands.
//
// The more rivals there are, the more rarely each asks. Their number is learned from
// how often the lock changes hands in a wait, and in those before. By this one alone
// it would be larger the longer the wait, and who has waited for long would never
// have a turn beside those who begin to; so that counts for less the longer it is.
func (p *pacing) between(waited time.Duration) time.Duration {
	changes := float64(p.changes)
	rivals := min(max(p.rivals, changes), p.rivals+fewRivals+math.Sqrt(changes))
	lowest := min(time.Duration(float64(p.set.pollMin)*max(1, rivals)), p.set.pollMax)

	return pollPause(waited, lowest, p.set.pollMax)
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
// for a lock for so long: from half of a bound up to it, which is an eighth of that time when it has
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
func (p *pacing) giveWay() time.Duration {
	p.rung++

	switch {
	case p.rung < fewRings && time.Now().Before(p.polite):
		return time.Duration(fewRings-p.rung) * politeness / 8
	case p.rung > 2*fewRings:
		// Half of them at once: otherwise all turns would go to those who begin to wait.
		spread := min(time.Duration(p.rung)*time.Millisecond, maxSpread)

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
func (p *pacing) register(wait context.Context) bool {
	l, name := p.locker, p.name

	if l.listener.notifier == nil {
		return false
	}

	if l.listener.isNoted(name) {
		return true
	}

	asked := time.Now()
	ctx, cancel := context.WithTimeout(wait, longest(p.set))

	defer cancel()

	registered, err := within(ctx, func(ctx context.Context) (bool, error) {
		return l.listener.notifier.Register(ctx, name, registration)
	})
	if err != nil || !registered {
		return false
	}

	l.listener.note(name, asked.Add(registration))

	return true
}
