package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

const (
	// lookLimit is how long a server has to say what it knows, or to free a name, and lookSlack how much longer the others
	// have at least when a majority has said it.
	lookLimit = 5 * time.Second
	lookSlack = 250 * time.Millisecond
	// reapLimit is how long a server has to reap.
	reapLimit = time.Minute
)

// answeredBy says whether so many have answered.
func answeredBy[T any](majority int) func([]answer[T]) bool {
	return func(answers []answer[T]) bool {
		return count(answers, func(a answer[T]) bool { return a.came && a.err == nil }) >= majority
	}
}

// listed is what a server says of a name.
type listed struct {
	status strategies.Status
	found  bool
}

// List returns the names that one owner has on a majority, as far as the servers that answer say: a majority has to. What
// Taken would tell is left out.
func (s *Strategy) List(ctx context.Context, f strategies.Filter) ([]strategies.Status, error) {
	most := f.Limit
	f.Limit = 0

	q := round[[]strategies.Status]{limit: lookLimit, slack: lookSlack, decided: answeredBy[[]strategies.Status](s.majority())}

	answers := q.ask(ctx, each(s, func(ctx context.Context, member strategies.Strategy) ([]strategies.Status, error) {
		return member.List(ctx, f)
	}))
	if err := s.enough(errorsOf(answers)); err != nil {
		return nil, err
	}

	type key struct{ name, owner string }

	groups := make(map[key][]strategies.Status)

	for _, a := range answers {
		for _, status := range a.value {
			if status.Owner != "" && status.Remaining > 0 {
				k := key{status.Name, status.Owner}
				groups[k] = append(groups[k], status)
			}
		}
	}

	silent := count(answers, func(a answer[[]strategies.Status]) bool { return a.err != nil })

	var held []strategies.Status

	for _, group := range groups {
		if len(group) >= s.majority() {
			held = append(held, s.whole(group, silent))
		}
	}

	slices.SortFunc(held, func(a, b strategies.Status) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})

	if most > 0 && len(held) > most {
		held = held[:most]
	}

	return held, nil
}

// Status returns what a majority knows of a name's latest grant: an owner that a majority has, or else that nobody holds the
// name. It is an error if servers that do not answer could say otherwise.
func (s *Strategy) Status(ctx context.Context, lock string) (strategies.Status, bool, error) {
	q := round[listed]{limit: lookLimit, slack: lookSlack, decided: answeredBy[listed](s.majority())}

	answers := q.ask(ctx, each(s, func(ctx context.Context, member strategies.Strategy) (l listed, err error) {
		l.status, l.found, err = member.Status(ctx, lock)

		return l, err
	}))

	errs := errorsOf(answers)
	if err := s.enough(errs); err != nil {
		return strategies.Status{}, false, err
	}

	groups, silent := make(map[string][]strategies.Status), 0

	var latest strategies.Status

	for _, a := range answers {
		switch {
		case a.err != nil:
			silent++
		case a.value.found:
			status := a.value.status
			groups[status.Owner] = append(groups[status.Owner], status)

			if status.Token > latest.Token {
				latest = status
			}
		}
	}

	for owner, group := range groups {
		switch {
		case owner == "":
		case len(group) >= s.majority():
			return s.whole(group, silent), true, nil
		case len(group)+silent >= s.majority():
			return strategies.Status{}, false, s.failed(fmt.Sprintf("say that it is held by %s", group[0].Holder.Host), len(group), errs, false)
		}
	}

	switch nobody := groups[""]; {
	case latest.Token == 0:
		return strategies.Status{}, false, nil
	case len(nobody) >= s.majority():
		return s.whole(nobody, silent), true, nil
	}

	// What is left of somebody is no holder.
	return strategies.Status{Name: lock, Strategy: name, Token: latest.Token}, true, nil
}

// detail says on how many servers a lock is held, if not on all.
func (s *Strategy) detail(group []strategies.Status, silent int) string {
	on := 0

	for _, status := range group {
		if status.Remaining > 0 {
			on++
		}
	}

	switch {
	case on == len(s.members):
		return ""
	case silent > 0:
		return fmt.Sprintf("held on %d of %d servers, and %d did not answer", on, len(s.members), silent)
	default:
		return fmt.Sprintf("held on %d of %d servers", on, len(s.members))
	}
}

// whole is the status of a grant that a majority tells of, while others are silent.
func (s *Strategy) whole(group []strategies.Status, silent int) strategies.Status {
	// One server may have drawn a larger token since, for an attempt that no majority granted.
	token := nth(s.majority(), group, func(st strategies.Status) int64 { return st.Token })
	whole := group[slices.IndexFunc(group, func(st strategies.Status) bool { return st.Token == token })]

	whole.Strategy = name
	whole.Remaining = nth(s.majority(), group, func(st strategies.Status) time.Duration { return st.Remaining })
	whole.HeldFor = nth(1, group, func(st strategies.Status) time.Duration { return st.HeldFor })
	whole.Taken, whole.Guarded = 0, false

	if whole.Remaining > 0 {
		whole.Detail = s.detail(group, silent)
	}

	if whole.Remaining == 0 {
		whole.HeldFor = 0
	}

	return whole
}

// enough is nil if a majority answered.
func (s *Strategy) enough(errs []error) error {
	answered := len(errs) - len(matching(errs, func(error) bool { return true }))
	if answered >= s.majority() {
		return nil
	}

	return s.failed("answered", answered, errs, false)
}

// ForceRelease ends the grant that was seen, on all servers. nil: a majority is free of it, so that its holder
// has lost it, and others can have it. With an error some may be free of it, too, and the holder keeps it only if a majority of
// all has it still.
func (s *Strategy) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	q := round[bool]{limit: lookLimit}

	if seen.Owner != "" {
		seen.Token = 0 // servers draw them by their own clocks
	}

	answers := q.ask(ctx, each(s, func(ctx context.Context, member strategies.Strategy) (bool, error) {
		return member.ForceRelease(ctx, seen, reason)
	}))

	errs := errorsOf(answers)

	// Where another owner has the name, the grant that was seen is gone.
	var others []*strategies.HeldError

	for i, err := range errs {
		if held := new(strategies.HeldError); errors.As(err, &held) && held.Owner != "" && !seen.Is(held.Token, held.Owner) {
			others, errs[i] = append(others, held), nil
		}
	}

	if successor := s.sameOwner(others); len(successor) >= s.majority() {
		return false, s.heldBy(seen.Name, successor)
	}

	forced := count(answers, func(a answer[bool]) bool { return a.value }) > 0
	free := count(answers, func(a answer[bool]) bool { return a.came && a.err == nil }) + len(others)

	if free >= s.majority() {
		return forced, nil
	}

	are := "are free of it"
	if forced {
		are += ", and its holder may have lost it"
	}

	// A row is locked.
	if errors.As(errors.Join(errs...), new(*strategies.HeldError)) {
		return forced, &strategies.HeldError{Name: seen.Name, Detail: s.describe(are, free, errs)}
	}

	return forced, s.failed(are, free, errs, false)
}

// Reap reaps all servers, and returns the sum of what they did.
func (s *Strategy) Reap(ctx context.Context, retention time.Duration) (sum strategies.Reaped, err error) {
	q := round[strategies.Reaped]{limit: reapLimit}

	answers := q.ask(ctx, each(s, func(ctx context.Context, member strategies.Strategy) (strategies.Reaped, error) {
		return member.Reap(ctx, retention)
	}))

	did := 0

	for _, a := range answers {
		sum.Expired += a.value.Expired
		sum.Removed += a.value.Removed

		if a.err == nil {
			did++
		}
	}

	if errs := errorsOf(answers); did < len(answers) {
		return sum, &failure{text: s.describe("were reaped", did, errs), errs: matching(errs, func(error) bool { return true })}
	}

	return sum, nil
}

// ReapIdle removes names that are not in use from all servers, and returns how many it has removed from the one that had
// most. A server that does not answer is left for the next time, as one whose names none uses.
func (s *Strategy) ReapIdle(ctx context.Context, idle time.Duration, limit int) (removed int, more bool, err error) {
	type page struct {
		removed int
		more    bool
	}

	q := round[page]{limit: lookLimit}

	answers := q.ask(ctx, each(s, func(ctx context.Context, member strategies.Strategy) (p page, err error) {
		p.removed, p.more, err = member.ReapIdle(ctx, idle, limit)

		return p, err
	}))

	for _, a := range answers {
		removed = max(removed, a.value.removed)
		more = more || a.err == nil && a.value.more
	}

	return removed, more, s.enough(errorsOf(answers))
}

// Close gives back what the members keep.
func (s *Strategy) Close(ctx context.Context) {
	q := round[none]{limit: endLimit}
	q.ask(ctx, each(s, func(ctx context.Context, member strategies.Strategy) (none, error) {
		member.Close(ctx)

		return none{}, nil
	}))
}
