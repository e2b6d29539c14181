package sqllock

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/sqllock/internal/call"
	"github.com/sqllock/sqllock/strategies"
)

// Claim is the right to a lock that [Lock.Detach] has left without a process: whoever has it can have the lock by [Locker.Adopt], once.
// It is a secret, which [Claim.Secret] returns as a text to keep or to send, and [ParseClaim] reads. All other ways to print it show
// the name and the token alone. The zero value is of no lock.
type Claim struct{ parts []claimed }

// claimed is what a claim has of each name, with the slot in it. That of the name that was given comes first.
type claimed struct {
	Name  string        `json:"n"`
	Owner string        `json:"o"`
	Token int64         `json:"t"`
	Last  int64         `json:"l"`
	Delay time.Duration `json:"d,omitempty"`
}

// What the text of a claim begins with: the version of what follows, which is a checksum and JSON.
const (
	claimMark    = "sqllock"
	claimVersion = "1"
)

// ErrInvalidClaim reports a text that is no claim: it was cut or changed, or a newer version of sqllock has made it.
var ErrInvalidClaim = errors.New("invalid claim")

// ParseClaim reads what [Claim.Secret] returned, with white space around it or not. It asks no database. Errors: [ErrInvalidClaim],
// which does not show the text.
func ParseClaim(text string) (Claim, error) {
	version, body, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), claimMark), "_")
	data, err := base64.RawURLEncoding.DecodeString(body)

	switch claim := (Claim{}); {
	case !strings.HasPrefix(strings.TrimSpace(text), claimMark), body == "":
		return claim, fmt.Errorf("%w: it does not begin with %s%s_", ErrInvalidClaim, claimMark, claimVersion)
	case version != claimVersion:
		return claim, fmt.Errorf("%w: it is of version %q, and this version of sqllock reads %s", ErrInvalidClaim, cut(version, 8), claimVersion)
	case err != nil, len(data) < crc32.Size, binary.BigEndian.Uint32(data) != crc32.ChecksumIEEE(data[crc32.Size:]),
		json.Unmarshal(data[crc32.Size:], &claim.parts) != nil, len(claim.parts) == 0:
		return Claim{}, fmt.Errorf("%w: it was cut or changed", ErrInvalidClaim)
	default:
		return claim, nil
	}
}

// Secret returns the claim as a text of letters, digits, - and _: about 150 of them, and more for each further name.
func (c Claim) Secret() string {
	if len(c.parts) == 0 {
		return ""
	}

	body, _ := json.Marshal(c.parts) // never fails: they are strings and numbers
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))

	return claimMark + claimVersion + "_" + base64.RawURLEncoding.EncodeToString(append(sum, body...))
}

// Name returns the name of the lock, and Token its fencing token, as those methods of [Lock] do.
func (c Claim) Name() string { name, _ := strategies.SplitSlot(c.first().Name); return name }

// Token returns the fencing token of the lock.
func (c Claim) Token() int64 { return c.first().Token }

func (c Claim) first() claimed {
	if len(c.parts) == 0 {
		return claimed{}
	}

	return c.parts[0]
}

// String tells the name and the token, and not the secret.
func (c Claim) String() string {
	return fmt.Sprintf("claim of lock %q (token %d)", c.Name(), c.Token())
}

// Format prints String, whatever the verb.
func (c Claim) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is String, for logs.
func (c Claim) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText refuses: what is written by a library that looks for it may be a log. Store [Claim.Secret].
func (c Claim) MarshalText() ([]byte, error) {
	return nil, fmt.Errorf("%s is a secret: write its Secret where it is to be kept", c)
}

// Detach leaves the lock to whoever adopts it: it is not renewed any more, its lease runs for so long from now on, and this handle has
// ended, as by a release ([ErrReleased]). [Locker.Close] and [Lock.Release] leave it alone then. Until it is adopted, [Locker.Holders] and
// [Locker.Inspect] tell of it as Status.Detached, and its lease is all that ends it, or [Locker.ForceRelease].
//
// The lease is 100 ms at least and 366 days at most. What [WithLockDelay] asked for still counts, and [WithMinHold] does not.
//
// Errors: a *[LostError]; [ErrReleased]; [ErrInvalidOption]; [ErrUnsupported] by strategies forupdate, advisory and quorum, if the lock is
// shared or if there are other handles of it; the database's. After [ErrNotAcquired], which says that a transaction guards the lock,
// and after the other errors that a call has before something was sent, the lock is held as before. If the database did not
// answer in five seconds the lock is lost: it is released in the background, and its lease ends it at the latest.
func (l *Lock) Detach(ctx context.Context, lease time.Duration) (Claim, error) {
	const verb = "detach"

	if err := l.Err(); err != nil {
		return Claim{}, err
	}

	if err := checkContext(ctx, verb); err != nil {
		return Claim{}, err
	}

	locker, holds := l.hold.locker, l.ctx.holds

	if err := locker.passes(verb, l.Name()); err != nil {
		return Claim{}, err
	}

	if _, err := l.hold.settings.with([]LockOption{WithoutRenewal(), WithLease(lease)}, locker.features); err != nil {
		return Claim{}, fmt.Errorf("%s lock %q: %w", verb, l.Name(), err)
	}

	// Before anything is sent, so that a renewal under way does not take it for a loss.
	for i, h := range holds {
		if err := h.beginDetach(); err != nil {
			for _, begun := range holds[:i] {
				begun.keepDetached()
			}

			return Claim{}, fmt.Errorf("%s lock %q: %w", verb, h.name, err)
		}
	}

	parts := make([]claimed, 0, len(holds))

	for _, h := range holds {
		part, err := h.detach(ctx, lease)
		if err != nil {
			return Claim{}, l.notDetached(ctx, verb, parts, part, err)
		}

		parts = append(parts, part)
	}

	for _, h := range holds {
		h.endDetached(ctx)
		locker.tell(l.ctx, h.event(Detached, nil))
	}

	given := slices.Index(holds, l.hold)
	parts[0], parts[given] = parts[given], parts[0]

	return Claim{parts}, nil
}

// detach has the grant go over to an owner that no process has.
func (h *hold) detach(ctx context.Context, lease time.Duration) (claimed, error) {
	r := newRequest(h.request.Name, h.settings)
	r.Owner, r.Lease, r.Holder = strategies.DetachedPrefix+r.Owner, lease, h.request.Holder
	r.Holder.PID = 0
	r.From = &strategies.Source{Owner: h.request.Owner, Token: h.grant.Token, Last: max(h.grant.Token, h.grant.Last)}

	_, _, err := h.locker.pass(ctx, r)

	return claimed{r.Name, r.Owner, r.From.Token, r.From.Last, r.LockDelay}, err
}

// notDetached ends what was detached, and what may have been though there was an error, which it returns.
func (l *Lock) notDetached(ctx context.Context, verb string, done []claimed, failed claimed, err error) error {
	h, rest := l.ctx.holds[len(done)], l.ctx.holds[len(done)+1:]

	for _, untouched := range rest {
		untouched.keepDetached()
	}

	if len(done) == 0 && lossIn(err) == nil && !uncertain(err) {
		h.keepDetached()

		return fmt.Errorf("%s lock %q: %w", verb, h.name, ownTime(ctx, err))
	}

	for _, part := range append(done, failed) {
		r := part.request(h.settings)
		r.Owner, r.From = part.Owner, nil
		h.locker.settle(ctx, r)
	}

	for _, other := range l.ctx.holds[:len(done)] {
		_ = other.loseDetached(&LostError{Reason: ReasonUnknown, Detail: "another name could not be detached with it"})
	}

	loss := lossIn(err)
	if loss == nil {
		loss = &LostError{Reason: ReasonUnknown, Detail: "it is not known whether it was detached", Err: outOfTime(err)}
	}

	return h.loseDetached(loss)
}

// Adopt acquires the lock that a claim is of, in whatever process: the grant that was detached goes on, with the same token, under the
// lease and the other options of this call, among which those that say what to acquire are of no account: [WithPermits], [WithShared],
// [WithNames], [WithMaxWait] and [WithReentrant]. A lease begins anew, and may be shorter than what was left.
//
// A claim is good for one adoption, by one who asks twice or by two who ask at a time. So the lock has one holder, whom nobody else can
// replace though they have the same token. Whoever comes later gets a *[LostError] that names it. To give the lock on, detach it again, which makes another claim.
//
// Errors: a *[LostError], the grant does not stand any more: it was adopted, released, taken away, expired, or is of another database;
// [ErrNotAcquired] or [ErrRecovering], a transaction has the row locked for five seconds, or nothing is granted after a fail-over:
// the claim is good as before; [ErrInvalidClaim], it is empty; [ErrInvalidOption], [ErrUnsupported], [ErrClosed]; the database's. After an error of the
// database the lock may have been adopted, by nobody who has it then: it ends with the lease of this call.
func (l *Locker) Adopt(ctx context.Context, claim Claim, options ...LockOption) (_ *Lock, err error) {
	set, err := l.claimed(ctx, "adopt", claim, options)
	if err != nil {
		return nil, err
	}

	name := claim.Name()
	if !l.background.begin(name) {
		return nil, fmt.Errorf("lock %q: %w", name, ErrClosed)
	}

	holds, event := make([]*hold, 0, len(claim.parts)), Event{Attempts: 1}
	began := now()

	for _, part := range claim.parts {
		var h *hold

		if h, err = l.adopt(ctx, part, set); err != nil {
			break
		}

		holds = append(holds, h)
	}

	event.Waited = now().since(began)
	l.background.finish(name)

	if err != nil {
		event.Kind, event.Name, event.Err = NotAcquired, name, err
		l.tell(ctx, event)

		return nil, withRelease(err, together(holds, func(i int) error { return holds[i].handle().Release(ctx) }))
	}

	lock := &Lock{hold: holds[0], ctx: holds[0].ctx}

	if len(holds) > 1 {
		slices.SortFunc(holds, func(a, b *hold) int { return cmp.Compare(a.name, b.name) })
		lock.ctx, lock.end = heldUnder(context.WithoutCancel(ctx), holds)
	}

	for _, h := range holds {
		h.announce(ctx)
		(&acquisition{locker: l}).emit(ctx, h, event)
	}

	return lock, nil
}

// claimed checks what is asked for with a claim, and returns the settings of its lock.
func (l *Locker) claimed(ctx context.Context, verb string, claim Claim, options []LockOption) (*settings, error) {
	if l != nil && len(claim.parts) == 0 {
		return nil, fmt.Errorf("%s: %w: it is empty", verb, ErrInvalidClaim)
	}

	set, err := l.settingsOf(ctx, cmp.Or(claim.Name(), "?"), options)
	if err != nil {
		return nil, err
	}

	if err := l.passes(verb, claim.Name()); err != nil {
		return nil, err
	}

	own := *set
	own.permits, own.shared, own.names = 0, false, nil

	return &own, nil
}

// passes says whether grants can go over to other owners.
func (l *Locker) passes(verb, name string) error {
	if l.features.Passes {
		return nil
	}

	return fmt.Errorf("%s lock %q: %w by strategy %s on %s; use strategy cas", verb, name, ErrUnsupported, l.features.Strategy, l.features.Database)
}

// adopt makes a hold of one of the names of a claim. No turn in this process comes with it.
func (l *Locker) adopt(ctx context.Context, part claimed, set *settings) (*hold, error) {
	r := part.request(set)

	grant, start, err := l.pass(ctx, r)

	switch loss := lossIn(err); {
	case loss != nil:
		return nil, part.lost(loss)
	case err != nil:
		return nil, fmt.Errorf("adopt lock %q: %w", part.Name, ownTime(ctx, err))
	}

	r.From = nil
	h := newHold(ctx, &acquisition{locker: l, set: set}, r, grant, start)
	h.pinned = true
	h.leaving.Do(func() {})

	if !l.keeper.keep(h) {
		_ = h.endCounted(errReleasedByClose)
		l.settleGrant(ctx, r, grant)

		return nil, fmt.Errorf("lock %q: %w", h.name, ErrClosed)
	}

	return h, nil
}

// CheckClaim asks the database whether the lock of a claim waits to be adopted. nil: it does. Errors are those of [Locker.Adopt].
func (l *Locker) CheckClaim(ctx context.Context, claim Claim) error {
	return l.useClaim(ctx, "check", claim, nil, func(ctx context.Context, g strategies.Grant, _ time.Duration) error {
		return strategies.RenewOne(ctx, l.strategy, g, 0)
	})
}

// ExtendClaim lets the lease of a lock that waits to be adopted run for at least d from now on. The claim stays the same. Errors are
// those of [Locker.Adopt].
func (l *Locker) ExtendClaim(ctx context.Context, claim Claim, d time.Duration) error {
	options := []LockOption{WithoutRenewal(), WithLease(d)}

	return l.useClaim(ctx, "extend", claim, options, func(ctx context.Context, g strategies.Grant, lease time.Duration) error {
		// It would renew one whose lease has ended, too, if nobody has the name yet.
		if err := strategies.RenewOne(ctx, l.strategy, g, 0); err != nil {
			return err
		}

		return strategies.RenewOne(ctx, l.strategy, g, lease)
	})
}

// ReleaseClaim releases a lock that waits to be adopted. Errors are those of [Locker.Adopt]; it may be called again after an error of
// the database.
func (l *Locker) ReleaseClaim(ctx context.Context, claim Claim) error {
	return l.useClaim(ctx, "release", claim, nil, func(ctx context.Context, g strategies.Grant, _ time.Duration) error {
		contended, err := strategies.ReleaseOne(ctx, l.strategy, g)
		if err == nil && contended {
			l.listener.call(ctx, claim.Name())
		}

		return err
	})
}

// useClaim does something with the grant of each name of a claim, as it stands. None after an error.
func (l *Locker) useClaim(
	ctx context.Context, verb string, claim Claim, options []LockOption, do func(context.Context, strategies.Grant, time.Duration) error,
) error {
	set, err := l.claimed(ctx, verb, claim, options)
	if err != nil {
		return err
	}

	for _, part := range claim.parts {
		name, _ := strategies.SplitSlot(part.Name)
		r := part.request(set)
		r.Owner, r.LockDelay = part.Owner, part.Delay

		err := call.Bounded(ctx, attemptTime, func(ctx context.Context) error {
			g, err := strategies.AcquireOne(ctx, l.strategy, r)
			if err != nil {
				return err
			}

			return do(ctx, g, set.lease)
		})

		if loss := lossIn(err); loss != nil {
			return part.lost(loss)
		} else if err != nil {
			return fmt.Errorf("%s lock %q: %w", verb, name, ownTime(ctx, err))
		}
	}

	return nil
}

// request asks for the grant of a part of a claim.
func (p claimed) request(set *settings) strategies.Request {
	r := newRequest(p.Name, set)
	r.From = &strategies.Source{Owner: p.Owner, Token: p.Token, Last: p.Last}

	return r
}

// lost is what users see of the strategy's report that the grant does not stand.
func (p claimed) lost(report *LostError) *LostError {
	loss := *report
	loss.Name, _ = strategies.SplitSlot(p.Name)
	loss.Token, loss.Unsettled = p.Token, false

	return &loss
}

// passTries is how often a grant is asked to go over that gets no answer, and passPause how long to wait for a transaction that has its
// row locked, between looks.
const (
	passTries = 3
	passPause = 10 * time.Millisecond
)

// pass has a grant go over to another owner. It is asked again while that is not known to be done, which changes nothing then, and while a
// transaction has the row locked, for as long as an attempt may take.
func (l *Locker) pass(ctx context.Context, r strategies.Request) (grant strategies.Grant, start instant, err error) {
	name, _ := strategies.SplitSlot(r.Name)

	var busy error // what it has waited for

	for began, try := time.Now(), 1; ; {
		start = now()
		grant, err = call.Limited(ctx, attemptTime, func(ctx context.Context) (strategies.Grant, error) {
			return strategies.AcquireOne(ctx, l.strategy, r)
		})

		held := new(HeldError)

		switch waits := errors.As(err, &held) && !held.Recovering || errors.Is(err, strategies.ErrBusy); {
		case ctx.Err() != nil && busy != nil && !uncertain(err):
			return grant, start, busy
		case err == nil, lossIn(err) != nil, ctx.Err() != nil, isAnswer(err) && !waits, waits && time.Since(began) >= attemptTime, try == passTries:
			return grant, start, asHeld(name, err)
		case waits:
			busy = asHeld(name, err)

			sleep(ctx, passPause/2+jitter(passPause))
		default:
			sleep(ctx, backoff(try, firstRetry, lastRetry))

			try++
		}
	}
}

// beginDetach ends the hold for the time being: what is known of its grant from then on is somebody else's.
func (h *hold) beginDetach() error {
	if h.readers != nil {
		return fmt.Errorf("%w for shared locks", ErrUnsupported)
	}

	if err := h.beginReleaseTx(); err != nil {
		return err
	}

	h.mu.Lock()
	defer h.mu.Unlock()

	h.freed = true

	return nil
}

// keepDetached makes the hold what it was before beginDetach.
func (h *hold) keepDetached() {
	h.mu.Lock()
	h.freed, h.releasing = false, false
	h.mu.Unlock()

	h.locker.keeper.resume(h)
}

// endDetached ends a hold whose grant has gone over. A release has nothing to do any more.
func (h *hold) endDetached(ctx context.Context) {
	h.releaser.Do(func() {})

	_ = h.end(ErrReleased)

	h.settleDoubt(ctx)
}

// loseDetached ends a hold of whose grant it is not known what became of it.
func (h *hold) loseDetached(loss *LostError) error {
	loss = h.lossOf(loss)
	_ = h.end(loss) // by now a renewal may have found that it was released

	h.releaseLater(h.ctx)

	return loss
}
