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
func (s *Strategy) refused(lock string, answers []answer[strategies.Grant], left bool) error {
	var (
		granted int
		held    []*strategies.HeldError
	)

	for _, a := range answers {
		known := new(strategies.HeldError)

		switch {
		case a.came && a.err == nil:
			granted++
		case errors.As(a.err, &known):
			held = append(held, known)
		}
	}

	var refusal *strategies.HeldError

	switch holders := s.sameOwner(held); {
	case len(holders) >= s.majority():
		refusal = s.heldBy(lock, holders)
	case granted+len(held) >= s.majority():
		// Several asked at the same time, and none has a majority; or it is not known who has, because a server does not answer.
		refusal = &strategies.HeldError{Name: lock, Detail: s.split(granted, len(held), answers)}
	default:
		return s.failed("granted it", granted, errorsOf(answers), left)
	}

	if left {
		refusal.Err = strategies.ErrUnsettled
	}

	return refusal
}

// unleveled is the error of an attempt whose token a majority did not take.
func (s *Strategy) unleveled(answers []answer[strategies.Grant], left bool) error {
	taken := count(answers, func(a answer[strategies.Grant]) bool { return a.came && a.err == nil })

	return s.failed("took its token", taken, errorsOf(answers), left)
}

// sameOwner returns those answers that tell of one grant: the largest such group.
func (s *Strategy) sameOwner(held []*strategies.HeldError) (largest []*strategies.HeldError) {
	groups := make(map[string][]*strategies.HeldError)

	for _, h := range held {
		if h.Owner != "" {
			groups[h.Owner] = append(groups[h.Owner], h)
		}

		if group := groups[h.Owner]; len(group) > len(largest) {
			largest = group
		}
	}

	return largest
}

// heldBy tells of a holder that a majority knows.
func (s *Strategy) heldBy(lock string, by []*strategies.HeldError) *strategies.HeldError {
	whole := *by[0]
	whole.Name = lock
	whole.Token = nth(s.majority(), by, func(h *strategies.HeldError) int64 { return h.Token })
	whole.Remaining = nth(s.majority(), by, func(h *strategies.HeldError) time.Duration { return h.Remaining })
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

// split says why nobody is known to have a name.
func (s *Strategy) split(granted, held int, answers []answer[strategies.Grant]) string {
	detail := fmt.Sprintf("no majority of %d servers is one holder's: %d of them granted it, %d did not", len(s.members), granted, held)

	if silent := len(answers) - granted - held; silent > 0 {
		detail += fmt.Sprintf(", and %d did not answer", silent)
	}

	return detail
}

// errorsOf are the errors of answers, nil where there is none.
func errorsOf[T any](answers []answer[T]) []error {
	errs := make([]error, len(answers))
	for i, a := range answers {
		errs[i] = a.err
	}

	return errs
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

func held(err error) bool { return errors.Is(err, strategies.ErrNotAcquired) }

// matching are the errors of which something is so.
func matching(errs []error, is func(error) bool) (some []error) {
	for _, err := range errs {
		if err != nil && is(err) {
			some = append(some, err)
		}
	}

	return some
}

// some is the error of a call about a grant that too few servers confirmed. It is no loss, though some may have lost it.
func (s *Strategy) some(verb string, did int, answers []answer[none]) error {
	errs := errorsOf(answers)
	told := matching(errs, func(err error) bool { return lossIn(err) == nil })

	if unknown := matching(told, strategies.Uncertain); len(unknown) > 0 {
		told = unknown
	}

	return &failure{text: s.describe(verb, did, errs), errs: told}
}

// all is nil if all servers did it.
func (s *Strategy) all(verb string, answers []answer[none]) error {
	did := count(answers, func(a answer[none]) bool { return a.came && a.err == nil })
	if did == len(answers) {
		return nil
	}

	return s.some(verb, did, answers)
}

// describe says on how many servers it was done, and what the others said.
func (s *Strategy) describe(verb string, did int, errs []error) string {
	var b strings.Builder

	fmt.Fprintf(&b, "%d of %d servers %s", did, len(s.members), verb)

	separator := ": "

	for i, err := range errs {
		if err != nil {
			b.WriteString(separator + s.server(i) + ": " + oneLine(err))

			separator = "; "
		}
	}

	return b.String()
}

// oneLine joins the lines of an error: of a driver that tells what each address of a server answered.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' })
	for i, line := range lines {
		lines[i] = strings.TrimRight(strings.TrimSpace(line), ":")
	}

	return strings.Join(lines, ": ")
}

// failure is an error of several servers.
type failure struct {
	text string
	errs []error // that it matches
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.errs }
