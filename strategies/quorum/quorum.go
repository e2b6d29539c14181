package quorum

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/calls"
	"github.com/sqllock/sqllock/strategies"
)

const name = "quorum"

// Strategy keeps locks on a majority of several servers. It is safe for concurrent use.
type Strategy struct {
	alone

	members []strategies.Strategy

	mu    sync.Mutex
	known map[string]*grant // by owner; nil: there were several attempts
}

// alone is for strategies that renew and release their grants one at a time.
type alone = calls.Alone

// New returns the strategy over others, each on a database server of its own: three or more of them, and an odd number
// (the package comment says why), with strategies cas or insert. sqllock.New reports what is wrong with them.
func New(members ...strategies.Strategy) *Strategy {
	return &Strategy{members: slices.Clone(members), known: make(map[string]*grant)}
}

// Validate reports members that cannot carry a quorum, or were built wrong themselves.
func (s *Strategy) Validate() error {
	const op = name + ".New"

	if n := len(s.members); n < 3 {
		return fmt.Errorf("%s: %w: it was given %d, and a majority that outlasts the failure of one needs three servers at least; "+
			"with one server use its strategy alone", op, strategies.ErrInvalidOption, n)
	}

	for i, member := range s.members {
		if v := reflect.ValueOf(member); member == nil || v.Kind() == reflect.Pointer && v.IsNil() {
			return fmt.Errorf("%s: %w: strategy %d is nil", op, strategies.ErrInvalidOption, i+1)
		}

		if j := slices.IndexFunc(s.members[:i], func(other strategies.Strategy) bool { return reflect.TypeOf(other).Comparable() && other == member }); j >= 0 {
			return fmt.Errorf("%s: %w: strategies %d and %d are the same; each needs a server of its own", op, strategies.ErrInvalidOption, j+1, i+1)
		}

		if err := member.Validate(); err != nil {
			return fmt.Errorf("%s: strategy %d: %w", op, i+1, err)
		}

		f, why := member.Features(), ""

		if _, raises := member.(strategies.Raiser); f.ConnectionHeld {
			why = "its locks end with a connection, without notice"
		} else if !raises {
			why = "its tokens cannot be raised"
		}

		if why != "" {
			return &strategies.UnsupportedError{
				Op: op, Strategy: name, Where: fmt.Sprintf("over strategy %s, which is given as %d: %s", f.Strategy, i+1, why), Instead: "cas",
			}
		}
	}

	return nil
}

// Features says what the strategy can do: what a lock is, and no more.
func (s *Strategy) Features() strategies.Features {
	f := strategies.Features{Strategy: name, Unbatched: true}

	var databases []string

	for _, member := range s.members {
		of := member.Features()
		databases = append(databases, of.Database)

		if of.MaxLease > 0 && (f.MaxLease == 0 || of.MaxLease < f.MaxLease) {
			f.MaxLease = of.MaxLease
		}
	}

	slices.Sort(databases)
	f.Database = strings.Join(slices.Compact(databases), " and ")

	return f
}

// majority is how many servers are more than half of all.
func (s *Strategy) majority() int { return len(s.members)/2 + 1 }

// byMajority says whether a majority did what it was asked for.
func (s *Strategy) byMajority(did, _ int) bool { return did >= s.majority() }

const (
	// longestLimit is how long a server has to answer at most while nothing is decided: asking again would help no more. An
	// attempt takes half as long again at most, with what follows its first question, and the core gives it five seconds.
	longestLimit = 3 * time.Second
	// limits is how many of them fit into a lease. The core gives a renewal a fifth of that.
	limits = 8
	// slacks is how many times shorter the rest is given when it is decided: there may be a server that never answers.
	slacks = 20
	// pauses is how many times shorter the first pause is before a server is asked again on which another has the name.
	pauses = 80
	// endLimit is how long a server has for a release, and to settle: the core gives a try to release a little more.
	endLimit = 1500 * time.Millisecond
)

// limit is how long a server has to answer what is asked about a lease.
func limit(lease time.Duration) time.Duration { return min(lease/limits, longestLimit) }

// own is a request as a member has it. It has one token, and stands in no line.
func own(r strategies.Request) strategies.Request {
	return strategies.Request{
		Name: r.Name, Owner: r.Owner, Lease: r.Lease, Tokens: 1, First: true, DurableRelease: r.DurableRelease, Holder: r.Holder,
	}
}

// Acquire asks all servers at once, and has the name if a majority grants it.
func (s *Strategy) Acquire(ctx context.Context, requests []strategies.Request) ([]strategies.Grant, []error) {
	return calls.Acquire(ctx, requests, s.acquire, calls.AcquireAlone)
}

func (s *Strategy) acquire(ctx context.Context, r strategies.Request) (none strategies.Grant, err error) {
	g, began, whole := newGrant(s, r), time.Now(), limit(r.Lease)
	s.remember(g)

	first := s.asking(whole)
	first.patient, first.decided = true, func(did, open int) bool { return did >= s.majority() || did+open < s.majority() }

	answers := g.enter(ctx, first)

	if g.count((*seat).holds) < s.majority() {
		return none, s.refused(r.Name, answers, g.giveBack(ctx))
	}

	// Whoever asked may have given up meanwhile, and settled what there was.
	if raised := g.level(ctx, whole+whole/3-time.Since(began)); g.leveled() < s.majority() {
		return none, s.failed("took its token", raised.count(), raised.errs(), g.giveBack(ctx))
	}

	// Until a server that met another, or whose answer was not waited for, has granted the name, the failure of one server more
	// is enough for the lock to be lost, and one that loses its data for somebody else to be granted it.
	if g.count(func(s *seat) bool { return s.vacant() && (inUse(s.why) || !s.doubt.IsZero()) }) > 0 {
		g.join(ctx, whole/pauses)
	}

	return strategies.Grant{Token: g.token, Last: g.token, Unsettled: g.unsettled(), State: g}, nil
}

// Settle ends what attempts of the owner left: on the servers that may have something, or on all if it is not known which.
func (s *Strategy) Settle(ctx context.Context, r strategies.Request) error {
	if g := s.attempt(r.Owner); g != nil {
		return g.settle(ctx, (*seat).suspect)
	}

	return newGrant(s, r).settle(ctx, func(*seat) bool { return true })
}
