package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// check is a claim and whether it held.
type check struct {
	ok   bool
	text string
}

// checks looks at all holds of the lock.
func checks(holds []hold, killedAt, lease time.Duration) []check {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b hold) int { return cmp.Compare(a.from, b.from) })

	return []check{exclusive(holds), growing(holds), handedOver(holds), takenOver(holds, killedAt, lease)}
}

func exclusive(holds []hold) check {
	for i := 1; i < len(holds); i++ {
		before, after := holds[i-1], holds[i]

		switch {
		case before.open:
			return check{false, fmt.Sprintf("worker %d had the lock and never said until when", before.worker)}
		case before.to > after.from:
			return check{false, fmt.Sprintf("workers %d and %d both had the lock for %s",
				before.worker, after.worker, short(before.to-after.from))}
		}
	}

	return check{len(holds) > 0, fmt.Sprintf("never two at once, in %d times that the lock was held", len(holds))}
}

func growing(holds []hold) check {
	for i := 1; i < len(holds); i++ {
		if holds[i].token <= holds[i-1].token {
			return check{false, fmt.Sprintf("token %d came after token %d", holds[i].token, holds[i-1].token)}
		}
	}

	return check{len(holds) > 0, "every token was larger than the one before"}
}

func handedOver(holds []hold) check {
	n := 0

	for i := 1; i < len(holds); i++ {
		if holds[i].worker != holds[i-1].worker {
			n++
		}
	}

	return check{n > 1, fmt.Sprintf("%d hand-overs between processes", n)}
}

// slack is for a machine that has more to do.
const slack = 3 * time.Second

func takenOver(holds []hold, killedAt, lease time.Duration) check {
	i := slices.IndexFunc(holds, func(h hold) bool { return h.killed })

	switch {
	case i < 0:
		return check{false, "no worker was killed while it had the lock"}
	case i == len(holds)-1:
		return check{false, fmt.Sprintf("nobody took over from worker %d after it was killed", holds[i].worker)}
	}

	took := holds[i+1].from - killedAt

	return check{took <= lease+slack, fmt.Sprintf("worker %d took over %s after worker %d was killed (lease %s)",
		holds[i+1].worker, short(took), holds[i].worker, lease)}
}

func short(d time.Duration) string { return d.Round(time.Millisecond).String() }
