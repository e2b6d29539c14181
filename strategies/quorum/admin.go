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

// askAll asks all servers.
func askAll[T any](ctx context.Context, s *Strategy, r round[T], call func(context.Context, strategies.Strategy) (T, error)) answers[T] {
	all := make([]int, len(s.members))
	for i := range all {
		all[i] = i
	}

	return r.ask(ctx, len(all), all, func(ctx context.Context, i int) (T, error) { return call(ctx, s.members[i]) })
}

// look asks all servers what they know. It is an error if no majority answers.
func look[T any](ctx context.Context, s *Strategy, call func(context.Context, strategies.Strategy) (T, error)) (answers[T], error) {
	said := askAll(ctx, s, round[T]{limit: lookLimit, slack: lookSlack, decided: s.byMajority}, call)

	return said, s.enough(said.errs())
}

// List returns the names that one owner has on a majority, as far as the servers that answer say: a majority has to. What
// Taken would tell is left out.
func (s *Strategy) List(ctx context.Context, f strategies.Filter) ([]strategies.Status, error) {
	most := f.Limit
	f.Limit = 0

	answers, err := look(ctx, s, func(ctx context.Context, member strategies.Strategy) ([]strategies.Status, error) {
		return member.List(ctx, f)
	})
	if err != nil {
		return nil, err
	}

	listed := slices.DeleteFunc(slices.Concat(answers.values()...), func(st strategies.Status) bool { return !st.Held() })

	var held []strategies.Status

	for _, group := range byOwner(listed, grantee) { // who has one name
		if len(group) >= s.majority() {
			held = append(held, s.whole(group, len(answers)-answers.count()))
		}
	}

	slices.SortFunc(held, func(a, b strategies.Status) int { return cmp.Compare(a.Name, b.Name) })

	if most > 0 && len(held) > most {
		held = held[:most]
	}

	return held, nil
}

// Status returns what a majority knows of a name's latest grant: an owner that a majority has, or else that nobody holds the
// name. It is an error if servers that do not answer could say otherwise.
func (s *Strategy) Status(ctx context.Context, lock string) (strategies.Status, bool, error) {
	// A name that a server does not know has no token there.
	answers, err := look(ctx, s, func(ctx context.Context, member strategies.Strategy) (strategies.Status, error) {
		status, _, err := member.Status(ctx, lock)

		return status, err
	})
	if err != nil {
		return strategies.Status{}, false, err
	}

	found := slices.DeleteFunc(answers.values(), func(st strategies.Status) bool { return st.Token <= 0 })
	free := slices.DeleteFunc(slices.Clone(found), func(st strategies.Status) bool { return st.Owner != "" })
	silent, held := len(answers)-answers.count(), largest(found, grantee)

	switch majority := s.majority(); {
	case len(found) == 0:
		return strategies.Status{}, false, nil
	case len(held) >= majority:
		return s.whole(held, silent), true, nil
	case len(held) > 0 && len(held)+silent >= majority:
		verb := fmt.Sprintf("say that it is held by %s", held[0].Holder.Host)

		return strategies.Status{}, false, s.failed(verb, len(held), answers.errs(), false)
	case len(free) >= majority:
		return s.whole(free, silent), true, nil
	default: // what is left of somebody is no holder
		return strategies.Status{Name: lock, Strategy: name, Token: nth(1, found, tokenOf)}, true, nil
	}
}

func tokenOf(st strategies.Status) int64 { return st.Token }

func grantee(st strategies.Status) string { return st.Owner }

// whole is the status of a grant that a majority tells of, while others are silent.
func (s *Strategy) whole(group []strategies.Status, silent int) strategies.Status {
	// One server may have drawn a larger token since, for an attempt that no majority granted.
	token := nth(s.majority(), group, tokenOf)
	whole := group[slices.IndexFunc(group, func(st strategies.Status) bool { return st.Token == token })]

	whole.Strategy = name
	whole.Remaining = nth(s.majority(), group, func(st strategies.Status) time.Duration { return st.Remaining })
	whole.HeldFor = nth(1, group, func(st strategies.Status) time.Duration { return st.HeldFor })
	whole.Taken, whole.Guarded = 0, false

	if whole.Remaining == 0 {
		whole.HeldFor = 0

		return whole
	}

	on := len(slices.DeleteFunc(slices.Clone(group), func(st strategies.Status) bool { return st.Remaining == 0 }))
	whole.Detail = fmt.Sprintf("held on %d of %d servers", on, len(s.members))

	switch {
	case on == len(s.members):
		whole.Detail = ""
	case silent > 0:
		whole.Detail += fmt.Sprintf(", and %d did not answer", silent)
	}

	return whole
}

// enough is nil if a majority answered.
func (s *Strategy) enough(errs []error) error {
	if answered := len(errs) - len(matching(errs, anything)); answered < s.majority() {
		return s.failed("answered", answered, errs, false)
	}

	return nil
}

// ForceRelease ends the grant that was seen, on all servers. nil: a majority is free of it, so that its holder
// has lost it, and others can have it. With an error some may be free of it, too, and the holder keeps it only if a majority of
// all has it still.
func (s *Strategy) ForceRelease(ctx context.Context, seen strategies.Status, reason string) (bool, error) {
	if seen.Owner != "" {
		seen.Token = 0 // servers draw them by their own clocks
	}

	answers := askAll(ctx, s, round[bool]{limit: lookLimit}, func(ctx context.Context, member strategies.Strategy) (bool, error) {
		return member.ForceRelease(ctx, seen, reason)
	})

	errs := answers.errs()

	// Where another owner has the name, the grant that was seen is gone.
	var others []*strategies.HeldError

	for i, err := range errs {
		if held := new(strategies.HeldError); errors.As(err, &held) && held.Owner != "" && !seen.Is(held.Token, held.Owner) {
			others, errs[i] = append(others, held), nil
		}
	}

	if successor := largest(others, ownerOf); len(successor) >= s.majority() {
		return false, s.heldBy(seen.Name, successor)
	}

	forced := slices.ContainsFunc(answers, func(a answer[bool]) bool { return a.value })
	free := answers.count() + len(others)

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
	reap := func(ctx context.Context, member strategies.Strategy) (strategies.Reaped, error) {
		return member.Reap(ctx, retention)
	}

	answers := askAll(ctx, s, round[strategies.Reaped]{limit: reapLimit}, reap)
	for _, a := range answers {
		sum.Expired += a.value.Expired
		sum.Removed += a.value.Removed
	}

	if did := answers.count(); did < len(answers) {
		errs := answers.errs()

		return sum, &failure{text: s.describe("were reaped", did, errs), errs: matching(errs, anything)}
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

	answers := askAll(ctx, s, round[page]{limit: lookLimit}, func(ctx context.Context, member strategies.Strategy) (p page, err error) {
		p.removed, p.more, err = member.ReapIdle(ctx, idle, limit)

		return p, err
	})

	for _, a := range answers {
		removed = max(removed, a.value.removed)
		more = more || a.err == nil && a.value.more
	}

	return removed, more, s.enough(answers.errs())
}

// Close gives back what the members keep.
func (s *Strategy) Close(ctx context.Context) {
	askAll(ctx, s, round[bool]{limit: endLimit}, func(ctx context.Context, member strategies.Strategy) (bool, error) {
		member.Close(ctx)

		return true, nil
	})
}
