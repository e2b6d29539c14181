package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// grant is a grant of a majority. An attempt that is under way is one already.
type grant struct {
	strategy *Strategy
	request  strategies.Request

	// token is the largest that the majority drew; each of its servers has it. It is zero before a majority is had, and stays then.
	token int64

	mu    sync.Mutex
	seats []seat
	lease time.Duration // of the last renewal
	until time.Time     // when the lease ends that a majority confirmed last
	found bool          // a loss on a server, since that
	ended bool          // by a release, or given back: what comes late is nobody's
	stop  func()        // ends the pauses of those who ask vacant servers; nil if nobody does
}

// seat is what is known of one server.
type seat struct {
	member strategies.Strategy

	grant strategies.Grant // none: it has not granted the name, or has said since that it is gone
	why   error            // what it said then; nil if it was not asked, or has not answered
	again time.Time        // it is not asked to grant the name before
	late  bool             // it has granted the name since the last renewal that a majority confirmed
	freed bool             // it has released it
	asked time.Time        // when a release got no answer; zero if it got one
	under int              // attempts that were given up, and have not returned
	doubt time.Time        // of the last attempt that may have left something, or bring it yet; zero if there is none
}

// holds says whether the server has granted the name and has not said since that it is gone.
func (s *seat) holds() bool { return !s.grant.None() }

// vacant says whether the server may be asked to grant the name. One on which somebody has freed it is not, for good: it would
// undo that.
func (s *seat) vacant() bool {
	loss := lossIn(s.why)

	return !s.holds() && s.under == 0 && (loss == nil || loss.Reason != strategies.Forced) && !time.Now().Before(s.again)
}

// suspect says whether the server may have something of an attempt, or of a grant that has ended.
func (s *seat) suspect() bool { return s.holds() && !s.freed || s.under > 0 || !s.doubt.IsZero() }

// byHand is how long an administrator may take to free a name on one server after the other. Others who wait are granted the
// name where it was freed, and then that looks like a server that has lost its data and granted the name to them.
const byHand = 10 * time.Minute

// newGrant is an attempt that begins now.
func newGrant(s *Strategy, r strategies.Request) *grant {
	g := &grant{strategy: s, request: own(r), lease: r.Lease, until: time.Now().Add(r.Lease), seats: make([]seat, len(s.members))}
	for i, member := range s.members {
		g.seats[i].member = member
	}

	return g
}

// where are the numbers of the servers of which something is so, and what is known of all.
func (g *grant) where(is func(*seat) bool) (some []int, seats []seat) {
	g.mu.Lock()
	defer g.mu.Unlock()

	for i := range g.seats {
		if is(&g.seats[i]) {
			some = append(some, i)
		}
	}

	return some, slices.Clone(g.seats)
}

// count is how many servers there are of which something is so.
func (g *grant) count(is func(*seat) bool) int {
	some, _ := g.where(is)

	return len(some)
}

// leveled is how many hold the name and have the token of the whole; none if nobody has the grant any more.
func (g *grant) leveled() int {
	return g.count(func(s *seat) bool { return !g.ended && s.holds() && s.grant.Token >= g.token })
}

// ask asks the servers of which something is so, each with what is known of it at the beginning.
func (g *grant) ask(
	ctx context.Context, r round[strategies.Grant], is func(*seat) bool, call func(context.Context, seat) (strategies.Grant, error),
) answers[strategies.Grant] {
	some, seats := g.where(is)

	return r.ask(ctx, len(seats), some, func(ctx context.Context, i int) (strategies.Grant, error) { return call(ctx, seats[i]) })
}

// asking is a round in which each server has so long to answer, and a majority decides.
func (s *Strategy) asking(limit time.Duration) round[strategies.Grant] {
	return round[strategies.Grant]{limit: limit, slack: limit / slacks, decided: s.byMajority}
}

// enter asks the servers that may be asked to grant the name to the owner. What is given up may come later, and is part of the
// grant then.
func (g *grant) enter(ctx context.Context, r round[strategies.Grant]) answers[strategies.Grant] {
	r.take = func(i int, a answer[strategies.Grant]) { g.arrived(ctx, i, a) }

	vacant := func(s *seat) bool {
		vacant := !g.ended && s.vacant()
		if vacant {
			s.under++ // a release that comes now has to know
		}

		return vacant
	}

	return g.ask(ctx, r, vacant, func(ctx context.Context, s seat) (strategies.Grant, error) {
		return strategies.AcquireOne(ctx, s.member, g.request)
	})
}

// arrived takes the answer to an attempt. If nobody has the lock any more it is given back.
func (g *grant) arrived(ctx context.Context, i int, a answer[strategies.Grant]) {
	g.mu.Lock()
	defer g.mu.Unlock()

	s, uncertain := &g.seats[i], strategies.Uncertain(a.err)

	switch {
	case !a.came:
		return
	case a.err != nil:
		s.why = a.err
	case !g.ended:
		s.grant, s.why, s.late = a.value, nil, g.token != 0
	default:
		g.mu.Unlock()

		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()

		// The core settles it, too, until that is confirmed.
		uncertain = s.member.Settle(ctx, g.request) != nil

		g.mu.Lock()
	}

	s.under--

	if uncertain {
		s.doubt = time.Now()
	}
}

// level raises those that hold the name to the largest of their tokens.
func (g *grant) level(ctx context.Context, limit time.Duration) answers[strategies.Grant] {
	g.mu.Lock()

	for _, s := range g.seats {
		g.token = max(g.token, s.grant.Token)
	}

	g.mu.Unlock()

	r, level := g.strategy.asking(limit), g.leveled()
	r.take = g.raised
	r.decided = func(did, _ int) bool { return level+did >= g.strategy.majority() }

	behind := func(s *seat) bool { return s.holds() && s.grant.Token < g.token }

	return g.ask(ctx, r, behind, func(ctx context.Context, s seat) (strategies.Grant, error) { return s.raise(ctx, g.token) })
}

// raise raises the grant of a member, which is a Raiser, as Validate found.
func (s *seat) raise(ctx context.Context, token int64) (strategies.Grant, error) {
	raiser, _ := s.member.(strategies.Raiser)

	return raiser.Raise(ctx, s.grant, token)
}

// raised takes the answer to a raise, or to a renewal. A loss that is found after a release began is what that has done.
//
// A server that says that the grant is gone is not asked again for a while. After a lease nothing is left of a majority of
// which it was a part, if it was freed on all of those: without them no renewal was confirmed.
func (g *grant) raised(i int, a answer[strategies.Grant]) {
	g.mu.Lock()
	defer g.mu.Unlock()

	s := &g.seats[i]

	switch loss := lossIn(a.err); {
	case loss == nil && s.holds() && a.value.Token > s.grant.Token:
		s.grant = a.value
	case loss != nil && !g.ended:
		absence := g.lease
		if loss.Reason == strategies.TakenOver {
			absence = max(absence, byHand)
		}

		g.found = true
		s.grant, s.why, s.again = strategies.Grant{}, loss, time.Now().Add(absence)
	}
}

// lossIn is the loss that an error tells of; nil if it is none.
func lossIn(err error) *strategies.LostError {
	var loss *strategies.LostError

	errors.As(err, &loss)

	return loss
}

// giveBack ends an attempt at once on the servers that have granted the name, and says whether something may be left.
func (g *grant) giveBack(ctx context.Context) (left bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit(g.request.Lease)/6)
	defer cancel()

	_ = g.settle(ctx, (*seat).holds)

	return g.strategy.forget(g)
}

// end notes that nobody has the grant any more.
func (g *grant) end() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.ended = true

	if g.stop != nil {
		g.stop()
	}
}

// settle ends on some servers what the owner has there.
func (g *grant) settle(ctx context.Context, is func(*seat) bool) error {
	g.end()

	r := round[strategies.Grant]{limit: endLimit, take: g.released}
	said := g.ask(ctx, r, is, func(ctx context.Context, s seat) (none strategies.Grant, err error) {
		return none, s.member.Settle(ctx, g.request)
	})

	if errs := said.errs(); len(matching(errs, anything)) > 0 {
		return g.strategy.some("settled", said.count(), errs)
	}

	return nil
}

// Renew renews the leases that there are, and has the other servers asked to grant the name to its holder, too.
func (g *grant) Renew(ctx context.Context, lease time.Duration) error {
	g.mu.Lock()
	g.lease = lease
	g.mu.Unlock()

	missing, err := g.renewAll(ctx, lease)
	g.join(ctx, 0)

	return g.partly(err, missing)
}

// renewAll renews the leases that there are. If a majority confirmed that, missing says where it was not, nil if it was
// everywhere. Those who have granted the name since the renewal before count from then on.
func (g *grant) renewAll(ctx context.Context, lease time.Duration) (missing, err error) {
	began := time.Now()
	said := g.ask(ctx, g.strategy.asking(limit(lease)), (*seat).holds, func(ctx context.Context, s seat) (strategies.Grant, error) {
		return s.renew(ctx, lease, g.token)
	})

	for i, a := range said {
		g.raised(i, a)
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	err = g.verdictLocked("renewed", said)

	switch until := began.Add(lease); {
	case lossIn(err) != nil:
		g.until = began // nobody is asked any more

		return nil, err
	case err != nil:
		return nil, err
	case until.After(g.until):
		g.until = until
	}

	g.found = false

	for i, a := range said {
		g.seats[i].late = g.seats[i].late && !a.did()
	}

	if did := said.count(); did < len(said) {
		missing = errors.New(g.describeLocked("renewed it", did, said))
	}

	return missing, nil
}

// partly is the answer to a renewal, or to a release, which says where it was not confirmed and whether a call of late got no answer.
func (g *grant) partly(err, missing error) error {
	unsettled := g.unsettled()

	switch loss := lossIn(err); {
	case loss != nil:
		loss.Unsettled = unsettled

		return loss
	case err != nil && unsettled:
		return &failure{text: err.Error(), errs: []error{err, strategies.ErrUnsettled}}
	case err == nil && (missing != nil || unsettled):
		return &strategies.PartialError{Err: missing, Unsettled: unsettled}
	default:
		return err
	}
}

// renew renews the lease of one server, and brings its token to that of the whole before. It returns the grant with that.
func (s *seat) renew(ctx context.Context, lease time.Duration, token int64) (raised strategies.Grant, failed error) {
	if s.grant.Token < token {
		switch raised, failed = s.raise(ctx, token); {
		case failed == nil:
			s.grant = raised
		case lossIn(failed) != nil:
			return raised, failed
		}
	}

	// Without the token it does not count, but its lease may run.
	if err := strategies.RenewOne(ctx, s.member, s.grant, lease); err != nil {
		return s.grant, err
	}

	return s.grant, failed
}

// join has the servers asked that have not granted the name, for the first time after a pause. One of them may have been
// down when the lock was acquired. It waits for none of them: one that says nothing must not hold up the renewals of other
// locks. It ends before the next renewal, and no later than the lease of the last one that was confirmed.
func (g *grant) join(ctx context.Context, pause time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.stop != nil {
		g.stop()
	}

	rest := min(g.lease/3, time.Until(g.until))
	if g.ended || rest <= 0 || !slices.ContainsFunc(g.seats, func(s seat) bool { return s.vacant() }) {
		return
	}

	ctx, g.stop = context.WithTimeout(context.WithoutCancel(ctx), rest)

	go g.joins(ctx, pause, limit(g.lease))
}

// joins asks vacant servers, and again after ever longer pauses where another has the name: it may be an attempt, which
// gives it back at once.
func (g *grant) joins(ctx context.Context, pause, limit time.Duration) {
	for ; ; pause = max(2*pause, limit/pauses) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}

		ctx := context.WithoutCancel(ctx)
		answers := g.enter(ctx, round[strategies.Grant]{limit: limit})

		if answers.count() > 0 {
			g.admit(ctx)
		}

		if !slices.ContainsFunc(answers.errs(), inUse) {
			return
		}
	}
}

// admit gives those who have granted the name late the token of the whole, and lets them count if the others have the grant
// still: by a renewal that makes no lease longer than the lock may be trusted. What else it finds the next one finds, too.
func (g *grant) admit(ctx context.Context) {
	g.mu.Lock()
	left := time.Until(g.until)
	g.mu.Unlock()

	if left > 0 {
		_, _ = g.renewAll(ctx, left)
	}
}

// inUse says whether an attempt failed because of another, which may end at any moment.
func inUse(err error) bool { return held(err) || errors.Is(err, strategies.ErrBusy) }

// Check asks the servers whether a majority has the lock still.
func (g *grant) Check(ctx context.Context) error {
	said := g.ask(ctx, g.strategy.asking(limit(g.request.Lease)), (*seat).holds, func(ctx context.Context, s seat) (strategies.Grant, error) {
		return s.grant, strategies.RenewOne(ctx, s.member, s.grant, 0)
	})

	g.mu.Lock()
	defer g.mu.Unlock()

	// Losses are not noted: a lease that has ended there, and that nobody else has had since, is there again when it is renewed.
	return g.verdictLocked("confirmed", said)
}

// verdictLocked is what the answers of those who hold the name come to. If one is a loss, those who have granted the name late
// do not count: another may have had it in between.
func (g *grant) verdictLocked(verb string, said answers[strategies.Grant]) error {
	isLoss := func(err error) bool { return lossIn(err) != nil }
	found := g.found || slices.ContainsFunc(said.errs(), isLoss)
	confirmed, kept := 0, 0

	for i, a := range said {
		if s := &g.seats[i]; isLoss(a.err) || found && s.late || !s.holds() {
			continue
		}

		kept++

		if a.did() {
			confirmed++
		}
	}

	switch majority := g.strategy.majority(); {
	case confirmed >= majority:
		return nil
	case kept < majority:
		return g.lostLocked(said.errs())
	default:
		err := g.strategy.some(verb, confirmed, said.errs())
		err.text = g.describeLocked(verb, confirmed, said)

		return err
	}
}

// describeLocked says on how many servers something was done, and what the others say, or have said before if they were not
// asked.
func (g *grant) describeLocked(verb string, did int, said answers[strategies.Grant]) string {
	errs := said.errs()

	for i, s := range g.seats {
		if !said[i].came && errs[i] == nil {
			errs[i] = s.why
		}
	}

	return g.strategy.describe(verb, did, errs)
}

// lostLocked is the loss of the whole, by the reason that says most of what servers say, or have said.
func (g *grant) lostLocked(errs []error) error {
	for _, s := range g.seats {
		errs = append(errs, s.why)
	}

	for _, reason := range []strategies.Reason{strategies.Forced, strategies.TakenOver, strategies.Expired, strategies.Unknown} {
		for _, err := range errs {
			if loss := lossIn(err); loss != nil && loss.Reason == reason {
				whole := *loss

				return &whole
			}
		}
	}

	return &strategies.LostError{Reason: strategies.Unknown}
}

// Release ends the grant on all servers.
func (g *grant) Release(ctx context.Context) (contended bool, err error) {
	return false, g.partly(g.release(ctx), nil)
}

// release ends the grant where it is, and what an attempt that got no answer may have left.
func (g *grant) release(ctx context.Context) error {
	g.end()

	r := g.strategy.asking(endLimit)
	r.slack, r.take = limit(g.request.Lease)/slacks, g.released

	taken := func(s *seat) bool { return s.suspect() && !s.freed }

	said := g.ask(ctx, r, taken, func(ctx context.Context, s seat) (none strategies.Grant, err error) {
		if s.holds() && s.grant.Token >= g.token {
			_, err = strategies.ReleaseOne(ctx, s.member, s.grant)

			return none, err
		}

		// Whether its token was raised is not known, by which it would know itself.
		return none, s.member.Settle(ctx, g.request)
	})

	g.strategy.forget(g)

	g.mu.Lock()
	defer g.mu.Unlock()

	free, kept := 0, 0

	for i, s := range g.seats {
		if s.freed || !s.suspect() || s.under == 0 && said[i].did() {
			free++
		}

		if s.holds() && (!s.late || !g.found) {
			kept++
		}
	}

	switch majority := g.strategy.majority(); {
	case kept < majority:
		return g.lostLocked(nil)
	case free >= majority:
		return nil
	default:
		return g.strategy.some("released", free, said.errs())
	}
}

// released takes the answer to a release, or that there was none in time.
func (g *grant) released(i int, a answer[strategies.Grant]) {
	g.mu.Lock()
	defer g.mu.Unlock()

	s := &g.seats[i]

	switch loss := lossIn(a.err); {
	case a.did(), loss != nil && !s.asked.IsZero() && loss.Reason == strategies.TakenOver:
		// Whoever has it now has had it after an earlier release, whose answer was lost.
		s.freed, s.asked = s.holds(), time.Time{}
	case loss != nil:
		g.found = true
		s.grant, s.why = strategies.Grant{}, loss
	default:
		s.asked = time.Now()
	}
}

// lateness is how long after it was given up a call may still be done: package sqllock looks as long for what an attempt may bring.
const lateness = 6 * time.Second

// unsettled says whether a call that the grant can do without got no answer, of late, and may have left something or bring it yet.
func (g *grant) unsettled() bool {
	late := time.Now().Add(-lateness)

	return g.count(func(s *seat) bool { return s.under > 0 || s.doubt.After(late) || s.asked.After(late) }) > 0
}
