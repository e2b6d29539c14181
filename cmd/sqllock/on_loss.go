package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/process"
)

// onLoss says what is done to the command when the lock cannot be kept: a
// signal so long before it is killed, or none.
type onLoss struct {
	signal process.Signal
	grace  time.Duration
}

const defaultGrace = 5 * time.Second

// parseOnLoss reads "term,kill=5s", "int,kill=1m" or "kill". Without a time, or
// empty, the grace is five seconds or a third of the lease.
func parseOnLoss(text string, lease time.Duration) (onLoss, error) {
	wrong := func(why string) (onLoss, error) {
		return onLoss{}, fmt.Errorf("--on-loss %s: %s; write kill, term,kill=5s or another signal in place of term", bounded(text), why)
	}

	loss := onLoss{process.Terminate, min(defaultGrace, lease/3)}

	ask, kill, both := strings.Cut(strings.ToLower(text), ",")
	verb, after, timed := strings.Cut(kill, "=")

	switch {
	case text == "":
		return loss, nil
	case !both && ask == "kill":
		return onLoss{}, nil
	case !both && strings.HasPrefix(ask, "kill="):
		return wrong("kill has a time only after another signal, as in term,kill=5s")
	case verb != "kill":
		return wrong("it must end with kill, as in term,kill=5s")
	}

	var err error
	if loss.signal, err = process.SignalNamed(ask); err != nil {
		return wrong(err.Error())
	}

	if timed {
		var d duration
		if err := d.Set(after); err != nil {
			return wrong("kill=" + bounded(after) + " is not a duration")
		}

		loss.grace = time.Duration(d)
	}

	return loss, loss.check(lease)
}

// check keeps the grace short enough for renewals to fail once: between them
// the trust falls to about two thirds of the lease.
func (l onLoss) check(lease time.Duration) error {
	if l.grace < 0 || l.grace > lease/2 {
		return fmt.Errorf("--on-loss kill=%s is not between 0 and half the lease (%s)", l.grace, lease/2)
	}

	if l.grace == 0 {
		return errors.New("--on-loss kill=0 leaves no time for the signal; write kill alone")
	}

	return nil
}
