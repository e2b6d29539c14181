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

	mu      sync.Mutex
	token   int64 // of the whole; zero before a majority is had
	seats   []seat
	lease   time.Duration // of the last renewal
	until   time.Time     // when the lease ends that a majority confirmed last
	missing error         // which servers did not confirm that; nil if all did
	found   bool          // a loss on a server, since that
	ended   bool          // by a release, or given back: what comes late is nobody's
	stop    func()        // ends the pauses of those who ask vacant servers; nil if nobody does
}

// seat is what is known of one server.
type seat struct {
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

// byHand is how long an administrator may take to free a name on one server after the other. Others who wait are granted the
// name where it was freed, and then that looks like a server that has lost its data and granted the name to them.
const byHand = 10 * time.Minute

// absence is how long a server is not asked again that has said that the grant is gone. After a lease nothing is left of a
// majority of which this server was a part, if it was freed on all of those: without them no renewal was confirmed.
func absence(loss *strategies.LostError, lease time.Duration) time.Duration {
	if loss.Reason == strategies.TakenOver {
		return max(lease, byHand)
	}

	return lease
}

func newGrant(s *Strategy, r strategies.Request) *grant {
	return &grant{strategy: s, request: own(r), lease: r.Lease, seats: make([]seat, len(s.members))}
}

// drawn is the largest of the tokens that the majority drew; each of its servers has it.
func (g *grant) drawn() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.token
}

// where lists the seats of which something is so.
func (g *grant) where(is func(*seat) bool) (list []int) {
	g.mu.Lock()
	defer g.mu.Unlock()

	for i := range g.seats {
		if is(&g.seats[i]) {
			list = append(list, i)
		}
	}

	return list
}

// vacant are the servers that may be asked to grant the name. It notes that they are: a release that comes now has to know.
func (g *grant) vacant() (at []int) {
	g.mu.Lock()
	defer g.mu.Unlock()

	for i := range g.seats {
		if s := &g.seats[i]; s.vacant() && !g.ended {
			s.under++

			at = append(at, i)
		}
	}

	return at
}

// over says whether nobody has the grant any more.
func (g *grant) over() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.ended
}

// held is how many hold the name.
func (g *grant) held() int { return len(g.where((*seat).holds)) }

// leveled is how many of them have the token.
func (g *grant) leveled() int {
	return len(g.where(func(s *seat) bool { return s.holds() && s.grant.Token >= g.token }))
}

// enter asks servers to grant the name to the owner, as vacant has noted. What is given up may come later, and is part of the grant then.
func (g *grant) enter(ctx context.Context, at []int, limit time.Duration, first bool) []answer[strategies.Grant] {
	s := g.strategy
	q := round[strategies.Grant]{limit: limit, slack: limit / slacks, patient: first}

	if first {
		q.decided = func(answers []answer[strategies.Grant]) bool { return decides(answers, s.majority()) }
	}

	q.late = func(i int, late strategies.Grant, err error) { g.arrived(ctx, i, late, err) }

	calls := make([]func(context.Context) (strategies.Grant, error), len(s.members))

	for _, i := range at {
		calls[i] = func(ctx context.Context) (strategies.Grant, error) {
			return strategies.AcquireOne(ctx, s.members[i], g.request)
		}
	}

	answers := q.ask(ctx, calls)

	for _, i := range at {
		if answers[i].came {
			g.arrived(ctx, i, answers[i].value, answers[i].err)
		}
	}

	return answers
}

// decides says whether a majority has granted the name, or cannot any more.
func decides[T any](answers []answer[T], majority int) bool {
	granted, open := 0, 0

	for _, a := range answers {
		switch {
		case !a.came:
			open++
		case a.err == nil:
			granted++
		}
	}

	return granted >= majority || granted+open < majority
}

// arrived takes the answer to an attempt. If nobody has the lock any more it is given back.
func (g *grant) arrived(ctx context.Context, i int, granted strategies.Grant, err error) {
	if g.sits(i, granted, err) {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()

	// The core settles it, too, until that is confirmed.
	err = g.strategy.members[i].Settle(ctx, g.request)

	g.mu.Lock()
	defer g.mu.Unlock()

	s := &g.seats[i]
	s.under--

	if err != nil {
		s.doubt = time.Now()
	}
}

// sits notes the answer to an attempt, unless the server has granted the name and the grant has ended.
func (g *grant) sits(i int, granted strategies.Grant, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if err == nil && g.ended {
		return false
	}

	s := &g.seats[i]
	s.under--

	if err == nil {
		s.grant, s.why, s.late = granted, nil, g.token != 0

		return true
	}

	s.why = err

	if strategies.Uncertain(err) {
		s.doubt = time.Now()
	}

	return true
}

// level raises those that hold the name to the largest of their tokens.
func (g *grant) level(ctx context.Context, limit time.Duration) []answer[strategies.Grant] {
	g.mu.Lock()

	calls := make([]func(context.Context) (strategies.Grant, error), len(g.seats))

	for i := range g.seats {
		if s := &g.seats[i]; s.holds() {
			g.token = max(g.token, s.grant.Token)
		}
	}

	token, level := g.token, 0

	for i := range g.seats {
		switch s := &g.seats[i]; {
		case !s.holds():
		case s.grant.Token >= token:
			level++
		default:
			granted := s.grant
			calls[i] = func(ctx context.Context) (strategies.Grant, error) { return g.strategy.raise(ctx, i, granted, token) }
		}
	}

	g.mu.Unlock()

	q := round[strategies.Grant]{limit: limit, slack: limit / slacks}
	q.late = func(i int, raised strategies.Grant, err error) { g.raised(i, raised, err) }
	q.decided = func(answers []answer[strategies.Grant]) bool {
		return level+count(answers, func(a answer[strategies.Grant]) bool { return a.came && a.err == nil }) >= g.strategy.majority()
	}

	answers := q.ask(ctx, calls)

	for i, a := range answers {
		if a.came {
			g.raised(i, a.value, a.err)
		}
	}

	return answers
}

// raise raises a grant of a member, which is a Raiser, as Validate found.
func (s *Strategy) raise(ctx context.Context, i int, granted strategies.Grant, token int64) (strategies.Grant, error) {
	raiser, _ := s.members[i].(strategies.Raiser)

	return raiser.Raise(ctx, granted, token)
}

// raised takes the answer to a raise.
func (g *grant) raised(i int, raised strategies.Grant, err error) {
	if err != nil {
		g.lose(i, err)

		return
	}

	g.mu.Lock()
	defer g.mu.Unlock()

	if s := &g.seats[i]; s.holds() {
		s.grant = raised
	}
}

// lose notes a loss, if the error is one. What is found after a release began is what that has done.
func (g *grant) lose(i int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if loss := lossIn(err); loss != nil && !g.ended {
		s := &g.seats[i]
		g.found = true
		s.grant, s.why, s.again = strategies.Grant{}, loss, time.Now().Add(absence(loss, g.lease))
	}
}

// lossIn is the loss that an error tells of; nil if it is none.
func lossIn(err error) *strategies.LostError {
	var loss *strategies.LostError

	errors.As(err, &loss)

	return loss
}

// count counts answers.
func count[T any](answers []answer[T], is func(answer[T]) bool) (n int) {
	for _, a := range answers {
		if is(a) {
			n++
		}
	}

	return n
}

// giveBack ends an attempt at once on the servers that have granted the name, and says whether something may be left.
func (g *grant) giveBack(ctx context.Context) (left bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit(g.request.Lease)/6)
	defer cancel()

	_ = g.settle(ctx, g.where((*seat).holds))

	if left = len(g.suspects()) > 0; !left {
		g.strategy.known.forget(g)
	}

	return left
}

// endLocked notes that nobody has the grant any more.
func (g *grant) endLocked() {
	g.ended = true

	if g.stop != nil {
		g.stop()
	}
}

// settle ends on some servers what the owner has there.
func (g *grant) settle(ctx context.Context, at []int) error {
	g.mu.Lock()
	g.endLocked()
	g.mu.Unlock()

	calls := make([]func(context.Context) (none, error), len(g.seats))

	for _, i := range at {
		member := g.strategy.members[i]
		calls[i] = only(func(ctx context.Context) error { return member.Settle(ctx, g.request) })
	}

	q := round[none]{limit: endLimit}
	answers := q.ask(ctx, calls)

	did := 0

	for _, i := range at {
		if answers[i].came && answers[i].err == nil {
			did++

			g.released(i, nil)
		}
	}

	if did == len(at) {
		return nil
	}

	return g.strategy.some("settled", did, answers)
}

// suspects are the servers that may have something of an attempt, or of a grant that has ended.
func (g *grant) suspects() []int {
	return g.where(func(s *seat) bool { return s.holds() && !s.freed || s.under > 0 || !s.doubt.IsZero() })
}

// Renew renews the leases that there are, and has the other servers asked to grant the name to its holder, too.
func (g *grant) Renew(ctx context.Context, lease time.Duration) error {
	began := time.Now()

	g.mu.Lock()
	g.lease = lease
	g.mu.Unlock()

	err := g.renewAll(ctx, lease)

	g.mu.Lock()

	switch {
	case err == nil:
		g.until = began.Add(lease)
	case lossIn(err) != nil:
		g.until = began // nobody is asked any more
	}

	g.mu.Unlock()
	g.join(ctx, 0)

	return g.partly(err)
}

// renewAll renews the leases that there are.
func (g *grant) renewAll(ctx context.Context, lease time.Duration) error {
	answers := g.askHolding(ctx, limit(lease), func(ctx context.Context, i int, granted strategies.Grant) error {
		return g.renew(ctx, i, granted, lease)
	})

	for i, a := range answers {
		if a.came {
			g.lose(i, a.err)
		}
	}

	err := g.verdict("renewed", answers)
	if err == nil {
		g.confirmed(answers)
	}

	return err
}

// confirmed takes the answers to a renewal that a majority confirmed. Those who have granted the name since the one before
// count from now on.
func (g *grant) confirmed(answers []answer[none]) {
	answers = g.withReasons(answers, func(answer[none]) bool { return true })

	g.mu.Lock()
	defer g.mu.Unlock()

	g.missing, g.found = nil, false

	confirmed := count(answers, confirms)
	if confirmed < len(answers) {
		g.missing = errors.New(g.strategy.describe("renewed it", confirmed, errorsOf(answers)))
	}

	for i, a := range answers {
		if confirms(a) {
			g.seats[i].late = false
		}
	}
}

// confirms and loses say what an answer does about a grant.
func confirms(a answer[none]) bool { return a.came && a.err == nil }
func loses(a answer[none]) bool    { return lossIn(a.err) != nil }

// partly is the answer to a renewal, or to a release, which says where it was not confirmed and whether a call of late got no answer.
func (g *grant) partly(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	unsettled := g.unsettledLocked()

	switch loss := lossIn(err); {
	case err == nil && g.missing == nil && !unsettled:
		return nil
	case err == nil:
		return &strategies.PartialError{Err: g.missing, Unsettled: unsettled}
	case loss != nil:
		loss.Unsettled = unsettled

		return loss
	case unsettled:
		return &failure{text: err.Error(), errs: []error{err, strategies.ErrUnsettled}}
	default:
		return err
	}
}

// renew renews the lease of one server, and brings its token to that of the whole before.
func (g *grant) renew(ctx context.Context, i int, granted strategies.Grant, lease time.Duration) error {
	token := g.drawn()
	if granted.Token >= token {
		return strategies.RenewOne(ctx, g.strategy.members[i], granted, lease)
	}

	raised, failed := g.strategy.raise(ctx, i, granted, token)
	if lossIn(failed) != nil {
		return failed
	}

	if failed == nil {
		g.raised(i, raised, nil)

		granted = raised
	}

	// Without the token it does not count, but its lease may run.
	if err := strategies.RenewOne(ctx, g.strategy.members[i], granted, lease); err != nil {
		return err
	}

	return failed
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

	ctx = context.WithoutCancel(ctx)

	var pauses context.Context

	pauses, g.stop = context.WithTimeout(ctx, rest)

	go g.joins(ctx, pauses.Done(), pause, limit(g.lease))
}

// joins asks vacant servers, and again after ever longer pauses where another has the name: it may be an attempt, which
// gives it back at once.
func (g *grant) joins(ctx context.Context, over <-chan struct{}, pause, limit time.Duration) {
	for ; ; pause = max(2*pause, limit/pauses) {
		select {
		case <-over:
			return
		case <-time.After(pause):
		}

		answers := g.enter(ctx, g.vacant(), limit, false)

		if count(answers, granted) > 0 {
			g.admit(ctx)
		}

		if count(answers, func(a answer[strategies.Grant]) bool { return inUse(a.err) }) == 0 {
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
		_ = g.renewAll(ctx, left)
	}
}

// granted says whether an answer is a grant.
func granted(a answer[strategies.Grant]) bool { return a.came && a.err == nil }

// inUse says whether an attempt failed because of another, which may end at any moment.
func inUse(err error) bool { return held(err) || errors.Is(err, strategies.ErrBusy) }

// begin is the end of an attempt, begun at a time, that has brought the grant. A server where it met another, or whose answer
// it did not wait for, is asked again soon. Until that has granted the name the failure of one server more is enough for the
// lock to be lost, and one that loses its data for somebody else to be granted it.
func (g *grant) begin(ctx context.Context, began time.Time) {
	g.mu.Lock()
	g.until = began.Add(g.lease)
	lease := g.lease
	g.mu.Unlock()

	if len(g.where(func(s *seat) bool { return s.vacant() && (inUse(s.why) || !s.doubt.IsZero()) })) > 0 {
		g.join(ctx, limit(lease)/pauses)
	}
}

// askHolding makes a call for each server that holds the name.
func (g *grant) askHolding(
	ctx context.Context, limit time.Duration, call func(ctx context.Context, i int, granted strategies.Grant) error,
) []answer[none] {
	g.mu.Lock()

	calls := make([]func(context.Context) (none, error), len(g.seats))

	for i := range g.seats {
		if s := &g.seats[i]; s.holds() {
			granted := s.grant
			calls[i] = only(func(ctx context.Context) error { return call(ctx, i, granted) })
		}
	}

	g.mu.Unlock()

	majority := g.strategy.majority()
	q := round[none]{limit: limit, slack: limit / slacks}
	q.decided = answeredBy[none](majority)

	return q.ask(ctx, calls)
}

// Check asks the servers whether a majority has the lock still.
func (g *grant) Check(ctx context.Context) error {
	answers := g.askHolding(ctx, limit(g.request.Lease), func(ctx context.Context, i int, granted strategies.Grant) error {
		return strategies.RenewOne(ctx, g.strategy.members[i], granted, 0)
	})

	// Losses are not noted: a lease that has ended there, and that nobody else has had since, is there again when it is renewed.
	return g.verdict("confirmed", answers)
}

// verdict is what the answers of those who hold the name come to. If one is a loss, those who have granted the name late do
// not count: another may have had it in between.
func (g *grant) verdict(verb string, answers []answer[none]) error {
	confirmed, kept, losses := g.tally(answers)

	switch majority := g.strategy.majority(); {
	case confirmed >= majority:
		return nil
	case kept < majority:
		return g.lost(losses)
	default:
		return g.strategy.some(verb, confirmed, g.withReasons(answers, loses))
	}
}

// tally counts who has confirmed the grant, and who holds it as far as is known.
func (g *grant) tally(answers []answer[none]) (confirmed, kept int, losses []*strategies.LostError) {
	g.mu.Lock()
	defer g.mu.Unlock()

	found := g.found || count(answers, loses) > 0

	for i, a := range answers {
		s := &g.seats[i]

		switch loss := lossIn(a.err); {
		case loss != nil:
			losses = append(losses, loss)
		case found && s.late, !s.holds():
		default:
			kept++

			if confirms(a) {
				confirmed++
			}
		}
	}

	return confirmed, kept, losses
}

// withReasons are the answers, with what those have said before that were not asked, as far as that is so.
func (g *grant) withReasons(answers []answer[none], is func(answer[none]) bool) []answer[none] {
	g.mu.Lock()
	defer g.mu.Unlock()

	answers = slices.Clone(answers)

	for i := range answers {
		said := answer[none]{err: g.seats[i].why}
		if answers[i].err == nil && !g.seats[i].holds() && is(said) {
			answers[i] = said
		}
	}

	return answers
}

// lost is the loss of the whole, by the reason that says most.
func (g *grant) lost(losses []*strategies.LostError) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	for i := range g.seats {
		if loss := lossIn(g.seats[i].why); loss != nil {
			losses = append(losses, loss)
		}
	}

	for _, reason := range []strategies.Reason{strategies.Forced, strategies.TakenOver, strategies.Expired, strategies.Unknown} {
		for _, loss := range losses {
			if loss.Reason == reason {
				whole := *loss

				return &whole
			}
		}
	}

	return &strategies.LostError{Reason: strategies.Unknown}
}

// Release ends the grant on all servers.
func (g *grant) Release(ctx context.Context) (contended bool, err error) {
	err = g.release(ctx)

	g.mu.Lock()
	g.missing = nil // of renewals
	g.mu.Unlock()

	return false, g.partly(err)
}

func (g *grant) release(ctx context.Context) error {
	calls := g.releases()
	majority := g.strategy.majority()

	q := round[none]{limit: endLimit, slack: limit(g.request.Lease) / slacks}
	q.decided = answeredBy[none](majority)
	q.late = func(i int, _ none, err error) { g.released(i, err) }

	answers := q.ask(ctx, calls)

	for i, a := range answers {
		switch {
		case calls[i] == nil:
		case a.came:
			g.released(i, a.err)
		default:
			g.unreleased(i)
		}
	}

	free := g.free(answers)

	if len(g.suspects()) == 0 {
		g.strategy.known.forget(g)
	}

	switch kept := g.where(func(s *seat) bool { return s.holds() && (!s.late || !g.found) }); {
	case len(kept) < majority:
		return g.lost(nil)
	case free >= majority:
		return nil
	default:
		return g.strategy.some("released", free, answers)
	}
}

// free is how many servers have nothing of the grant any more, after the answers to a release.
func (g *grant) free(answers []answer[none]) (free int) {
	g.mu.Lock()
	defer g.mu.Unlock()

	for i := range g.seats {
		switch s := &g.seats[i]; {
		case s.freed, s.under == 0 && confirms(answers[i]):
			free++
		case !s.holds() && s.under == 0 && s.doubt.IsZero():
			free++
		}
	}

	return free
}

// releases are the calls that end the grant where it is, and what an attempt that got no answer may have left.
func (g *grant) releases() []func(context.Context) (none, error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.endLocked()

	calls := make([]func(context.Context) (none, error), len(g.seats))

	for i := range g.seats {
		s, member := &g.seats[i], g.strategy.members[i]

		switch {
		case s.freed:
		case s.holds() && s.grant.Token >= g.token:
			granted := s.grant
			calls[i] = only(func(ctx context.Context) error {
				_, err := strategies.ReleaseOne(ctx, member, granted)

				return err
			})
		case s.holds() || s.under > 0 || !s.doubt.IsZero():
			// Whether its token was raised is not known, by which it would know itself.
			calls[i] = only(func(ctx context.Context) error { return member.Settle(ctx, g.request) })
		}
	}

	return calls
}

// released takes the answer to a release.
func (g *grant) released(i int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	s := &g.seats[i]
	loss := lossIn(err)

	switch {
	case err == nil, loss != nil && !s.asked.IsZero() && loss.Reason == strategies.TakenOver:
		// Whoever has it now has had it after an earlier release, whose answer was lost.
		s.freed, s.asked = s.holds(), time.Time{}
	case loss != nil:
		g.found = true
		s.grant, s.why = strategies.Grant{}, loss
	default:
		s.asked = time.Now()
	}
}

// unreleased notes that a release got no answer in time.
func (g *grant) unreleased(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.seats[i].asked = time.Now()
}

// lateness is how long after it was given up a call may still be done: package sqllock looks as long for what an attempt may bring.
const lateness = 6 * time.Second

// unsettled says whether a call that the grant can do without got no answer, of late, and may have left something or bring it yet.
func (g *grant) unsettled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.unsettledLocked()
}

func (g *grant) unsettledLocked() bool {
	late := time.Now().Add(-lateness)

	return slices.ContainsFunc(g.seats, func(s seat) bool { return s.under > 0 || s.doubt.After(late) || s.asked.After(late) })
}
