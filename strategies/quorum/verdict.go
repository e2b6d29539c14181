package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// refused is the error of an attempt that no majority granted. left: something may be left of it.
func (s *Strategy) refused(lock string, answers answers[strategies.Grant], left bool) error {
	granted, errs := answers.count(), answers.errs()

	var held []*strategies.HeldError

	for _, err := range errs {
		if known := new(strategies.HeldError); errors.As(err, &known) {
			held = append(held, known)
		}
	}

	var refusal *strategies.HeldError

	recovering := slices.DeleteFunc(slices.Clone(held), func(h *strategies.HeldError) bool { return !h.Recovering })

	switch holders := largest(held, ownerOf); {
	case len(holders) >= s.majority():
		refusal = s.heldBy(lock, holders)
	case len(recovering) > len(s.members)-s.majority():
		// Until so many grant again that there is a majority.
		pause := nth(len(s.members)-s.majority()+1, recovering, remaining)
		refusal = &strategies.HeldError{Name: lock, Recovering: true, Remaining: pause, Detail: s.describe("granted it", granted, errs)}
	case granted+len(held) >= s.majority():
		// Several asked at the same time, and none has a majority; or it is not known who has, because a server does not answer.
		refusal = &strategies.HeldError{Name: lock, Detail: "no majority is one holder's: " + s.describe("granted it", granted, errs)}
	default:
		return s.failed("granted it", granted, errs, left)
	}

	if left {
		refusal.Err = strategies.ErrUnsettled
	}

	return refusal
}

// byOwner are those that each owner has, whom of tells; whoever it does not know is nobody.
func byOwner[T any](all []T, of func(T) string) map[string][]T {
	groups := make(map[string][]T)

	for _, one := range all {
		if owner := of(one); owner != "" {
			groups[owner] = append(groups[owner], one)
		}
	}

	return groups
}

// largest returns the most that one owner has.
func largest[T any](all []T, of func(T) string) (most []T) {
	groups := byOwner(all, of)

	for _, one := range all {
		if group := groups[of(one)]; len(group) > len(most) {
			most = group
		}
	}

	return most
}

func ownerOf(h *strategies.HeldError) string { return h.Owner }

func remaining(h *strategies.HeldError) time.Duration { return h.Remaining }

// heldBy tells of a holder that a majority knows.
func (s *Strategy) heldBy(lock string, by []*strategies.HeldError) *strategies.HeldError {
	whole := *by[0]
	whole.Name = lock
	whole.Token = nth(s.majority(), by, func(h *strategies.HeldError) int64 { return h.Token })
	whole.Remaining = nth(s.majority(), by, remaining)
	whole.Line, whole.Err = 0, nil

	return &whole
}

// nth is the n-th largest value. At least as many servers have it or more: with n of the majority that is the token of the
// whole, and the time until it has no majority any more.
func nth[T any, V int64 | time.Duration](n int, all []T, value func(T) V) V {
	values := make([]V, len(all))
	for i, one := range all {
		values[i] = value(one)
	}

	slices.Sort(values)

	return values[len(values)-n]
}

// failed is the error of an attempt that too few servers answered. It matches what keeps a majority from being had: what a
// minority lacks, the tables for example, does not.
func (s *Strategy) failed(verb string, did int, errs []error, left bool) error {
	failure := &failure{text: s.describe(verb, did, errs)}
	without := func(is func(error) bool) bool { // there would be a majority without what these have
		failure.errs = matching(errs, is)

		return len(failure.errs) > len(s.members)-s.majority()
	}

	if !without(final) && !without(readOnly) {
		failure.errs = matching(errs, func(err error) bool { return !final(err) && !readOnly(err) && !held(err) && lossIn(err) == nil })
		failure.errs = append(failure.errs, strategies.ErrUnreachable)

		if !left {
			failure.errs = append(failure.errs, strategies.ErrNotSent)
		}
	}

	if left {
		failure.errs = append(failure.errs, strategies.ErrUnsettled)
	}

	return failure
}

// final says whether asking again is of no use, readOnly and held what their names say.
func final(err error) bool {
	return errors.Is(err, strategies.ErrUnsupported) || errors.Is(err, strategies.ErrNoSchema) ||
		errors.Is(err, strategies.ErrNotAllowed) || errors.Is(err, strategies.ErrInvalidOption)
}

func readOnly(err error) bool { return errors.Is(err, strategies.ErrReadOnly) }

func held(err error) bool { return errors.As(err, new(*strategies.HeldError)) }

func anything(error) bool { return true }

// matching are the errors of which something is so.
func matching(errs []error, is func(error) bool) []error {
	return slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil || !is(err) })
}

// some is the error of a call about a grant that too few servers confirmed. It is no loss, though some may have lost it.
func (s *Strategy) some(verb string, did int, errs []error) *failure {
	told := matching(errs, func(err error) bool { return lossIn(err) == nil })

	if unknown := matching(told, strategies.Uncertain); len(unknown) > 0 {
		told = unknown
	}

	return &failure{text: s.describe(verb, did, errs), errs: told}
}

// describe says on how many servers it was done, and what the others said.
func (s *Strategy) describe(verb string, did int, errs []error) string {
	var b strings.Builder

	fmt.Fprintf(&b, "%d of %d servers %s", did, len(s.members), verb)

	separator := ": "

	for i, err := range errs {
		if err != nil {
			// A driver tells in lines what each address of a server answered.
			said := strings.Join(strings.Fields(err.Error()), " ")
			fmt.Fprintf(&b, "%sserver %d (%s): %s", separator, i+1, s.members[i].Features().Database, said)

			separator = "; "
		}
	}

	return b.String()
}

// failure is an error of several servers.
type failure struct {
	text string
	errs []error // that it matches
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.errs }
