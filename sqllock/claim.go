package sqllock

import (
	"cmp"
	"context"
	"database/sql/driver"
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
	Lease time.Duration `json:"e"`
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
		json.Unmarshal(data[crc32.Size:], &claim.parts) != nil, !claim.sound():
		return Claim{}, fmt.Errorf("%w: it was cut or changed", ErrInvalidClaim)
	default:
		return claim, nil
	}
}

// Secret returns the claim as a text of letters, digits, - and _: some 170 of them, and more for a long name and for each further one.
// Keep it in a column of a type without a limit.
func (c Claim) Secret() string {
	if len(c.parts) == 0 {
		return ""
	}

	body, _ := json.Marshal(c.parts) // never fails: they are strings and numbers
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body))

	return claimMark + claimVersion + "_" + base64.RawURLEncoding.EncodeToString(append(sum, body...))
}

// Name returns the name of the lock; empty if the claim is empty.
func (c Claim) Name() string { name, _ := strategies.SplitSlot(c.first().Name); return name }

// Token returns the fencing token of the lock.
func (c Claim) Token() int64 { return c.first().Token }

// Names returns all names of the lock, the one that was given first.
func (c Claim) Names() []string {
	names := make([]string, len(c.parts))
	for i, part := range c.parts {
		names[i], _ = strategies.SplitSlot(part.Name)
	}

	return names
}

// Slot is the number of the permit; zero if the name has none.
func (c Claim) Slot() int { _, slot := strategies.SplitSlot(c.first().Name); return slot }

// sound says whether it is of grants that were detached, and of no others.
func (c Claim) sound() bool {
	return len(c.parts) > 0 && !slices.ContainsFunc(c.parts, func(p claimed) bool {
		return !strings.HasPrefix(p.Owner, strategies.DetachedPrefix) || p.Token <= 0 || p.Last < p.Token
	})
}

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
func (c Claim) MarshalText() ([]byte, error) { return nil, c.refuse() }

// Value refuses, too: a driver would store String.
func (c Claim) Value() (driver.Value, error) { return nil, c.refuse() }

func (c Claim) refuse() error {
	return fmt.Errorf("%s is a secret: write its Secret where it is to be kept", c)
}

// Detach ends this handle and keeps the lock taken until somebody adopts it, or its lease is over, which is so long from now on. It is
// as after [Lock.Release], which does nothing more then, and [Locker.Close] leaves the lock alone. Until it is adopted [Locker.Holders]
// and [Locker.Inspect] tell of it as Status.Detached, and [Locker.ReleaseClaim] or [Locker.ForceRelease] end it. Tokens do not tell the
// work before it from that of whoever adopts it: finish the one before.
//
// The lease is 100 ms at least and 366 days at most. A recovery pause is as long as the longest lease ([ErrRecovering]), so do not ask for
// more than is needed: [Locker.ExtendClaim] prolongs it. What [WithLockDelay] asked for still counts, and [WithMinHold] does not.
//
// It works though ctx has ended, and takes five seconds at most, for which it waits for a transaction that guards the lock.
//
// Errors with which the lock is still held: [ErrInvalidOption]; [ErrUnsupported], by strategies forupdate, advisory and quorum, if the
// lock is shared or if there are other handles of it. Release it then. [ErrReleased]: it was released. After any other error it is
// released, or will be in the background: a *[LostError]; [ErrNotAcquired], a transaction had it guarded; [ErrRecovering], in a recovery
// pause; the database's.
func (l *Lock) Detach(ctx context.Context, lease time.Duration) (claim Claim, err error) {
	if err := l.detachable(ctx, lease); err != nil {
		return Claim{}, err
	}

	var news []Event

	err = fmt.Errorf("detach lock %q: %w", l.Name(), ErrReleased) // beside this call

	l.release.Do(func() {
		l.endHandle()

		claim, news, err = l.detach(ctx, lease)
		l.result = err
	})

	l.tell(news)

	return claim, err
}

// detachable says why a lock cannot be detached.
func (l *Lock) detachable(ctx context.Context, lease time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}

	if err := checkContext(ctx, "detach"); err != nil {
		return err
	}

	err := l.hold.locker.passes("detach", l.Name())
	if err == nil {
		_, err = l.hold.settings.with([]LockOption{WithoutRenewal(), WithLease(lease)}, l.hold.locker.features)
	}

	for _, h := range l.ctx.holds {
		switch v := h.view(); {
		case err != nil:
		case h.readers != nil:
			err = fmt.Errorf("%w for shared locks", ErrUnsupported)
		case v.handles > 1:
			err = errOtherHandles
		case v.releasing:
			err = ErrReleased // a transaction may do it
		}
	}

	if err != nil {
		return fmt.Errorf("detach lock %q: %w", l.Name(), err)
	}

	return nil
}

// detach has the grants of all names go over to nobody, or releases all.
func (l *Lock) detach(ctx context.Context, lease time.Duration) (claim Claim, news []Event, err error) {
	holds := l.ctx.holds
	news = make([]Event, len(holds))

	for i, h := range holds {
		if err != nil {
			_ = l.releaseHold(ctx, h, &news[i])

			continue
		}

		var part claimed

		if part, err = h.detach(ctx, lease, &news[i]); err == nil {
			claim.parts = append(claim.parts, part)
		}
	}

	if err != nil {
		for _, part := range claim.parts {
			l.hold.locker.settleClaim(ctx, part)
		}

		return Claim{}, news, err
	}

	given := slices.Index(holds, l.hold)
	claim.parts[0], claim.parts[given] = claim.parts[given], claim.parts[0]

	return claim, news, nil
}

// detach ends the hold and has its grant go over to nobody, unless somebody else ends it, and sets what there is to tell.
func (h *hold) detach(ctx context.Context, lease time.Duration, event *Event) (part claimed, err error) {
	if !h.drop() {
		return part, fmt.Errorf("detach lock %q: %w", h.name, errOtherHandles) // one has come just now
	}

	err = fmt.Errorf("detach lock %q: %w", h.name, errReleasedByClose)

	h.releaser.Do(func() {
		part, err = h.detachNow(ctx, lease, event)
		h.released = err
	})

	return part, err
}

func (h *hold) detachNow(ctx context.Context, lease time.Duration, event *Event) (part claimed, err error) {
	// Close waits for it.
	h.locker.background.count(h.name)
	defer h.locker.background.finish(h.name)

	// First the work is told to stop, then others may have the lock.
	if state := h.endCounted(ErrReleased); errors.Is(state, ErrLost) {
		h.releaseLater(ctx)

		return part, state
	}

	defer h.passTurn()

	h.locker.turns.learnTokens(h)

	r := newRequest(h.request.Name, h.settings)
	r.Owner, r.Lease, r.MinHold, r.Holder = strategies.DetachedPrefix+r.Owner, lease, 0, h.request.Holder
	r.Holder.PID = 0
	r.From = &strategies.Source{Owner: h.request.Owner, Token: h.grant.Token, Last: max(h.grant.Token, h.grant.Last)}

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTime)
	defer cancel()

	_, _, err = h.locker.pass(bounded, r)
	loss := lossIn(err)

	h.settleDoubt(ctx)

	switch {
	case err == nil:
		*event = h.event(Detached, nil)
		h.announce(ctx)

		return claimed{r.Name, r.Owner, r.From.Token, r.From.Last, lease, r.LockDelay}, nil
	case loss != nil:
		err = h.lossOf(loss)
	default:
		err = fmt.Errorf("detach lock %q, which is released: %w", h.name, outOfTime(err))
		r.From = nil
		h.locker.settle(ctx, r)
		h.releaseLater(ctx)
	}

	*event = h.event(Released, err)

	return part, err
}

// Adopt acquires the lock that a claim is of, in whatever process: the grant that was detached goes on, with the same token, under the
// lease and the other options of this call. [WithPermits], [WithShared], [WithNames], [WithMaxWait] and [WithReentrant] have no effect.
// A lease begins anew, and may be shorter than what was left.
//
// A claim is good for one adoption, whoever tries again. So the lock has one holder, whom nobody else can replace though they have the
// same token. Whoever comes later gets a *[LostError] that names it, with [ReasonAdopted]. To give the lock on, detach it again, which
// makes another claim. If who has adopted it dies, its lease ends the lock, and what is left to do is done under another grant.
//
// Errors: a *[LostError], the grant does not stand any more: it was adopted, released, taken away, expired, or is of another database;
// [ErrNotAcquired], a transaction has the row locked for five seconds; [ErrRecovering], in a recovery pause, in which claims can be
// extended; [ErrInvalidClaim], it is empty; [ErrInvalidOption], [ErrUnsupported], [ErrClosed]; the database's. After any but the first
// the claim is good as before. If the answer was lost, it becomes so when the database answers, with the lease of Detach. If one of
// several names does not stand, the others are released.
func (l *Locker) Adopt(ctx context.Context, claim Claim, options ...LockOption) (*Lock, error) {
	set, err := l.claimSettings(ctx, "adopt", claim, options)
	if err != nil {
		return nil, err
	}

	name := claim.Name()
	if !l.background.begin(name) {
		return nil, fmt.Errorf("lock %q: %w", name, ErrClosed)
	}

	began := now()
	holds, err := l.adopt(ctx, claim, set)
	event := Event{Kind: NotAcquired, Name: name, Attempts: 1, Waited: now().since(began), Err: err}

	l.background.finish(name)

	if err != nil {
		l.tell(ctx, event)

		return nil, err
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

// claimSettings checks what is asked for with a claim, and returns the settings of its lock.
func (l *Locker) claimSettings(ctx context.Context, verb string, claim Claim, options []LockOption) (*settings, error) {
	if l != nil && !claim.sound() {
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

// adopt returns the holds of all names of a claim, that of the name that was given first.
func (l *Locker) adopt(ctx context.Context, claim Claim, set *settings) ([]*hold, error) {
	var holds []*hold

	for _, part := range claim.parts {
		r := part.request(set)

		grant, start, err := l.pass(ctx, r)
		if err != nil {
			return nil, l.notAdopted(ctx, claim, holds, r.Owner, err)
		}

		r.From = nil
		holds = append(holds, newHold(ctx, &acquisition{locker: l, set: set}, r, grant, start))
	}

	kept := true

	for _, h := range holds {
		// No turn in this process came with it, and none is handed on.
		h.pinned = true
		h.leaving.Do(func() {})

		kept = l.keeper.keep(h) && kept
	}

	if !kept {
		for _, h := range holds {
			_ = h.endCounted(errReleasedByClose)
			l.settle(ctx, h.request)
		}

		return nil, fmt.Errorf("lock %q: %w", claim.Name(), ErrClosed)
	}

	return holds, nil
}

// notAdopted is the error of a claim of which some names were adopted, and the next one, by an owner, was not. If that is lost the others
// are released. After any other error what was adopted is given back.
func (l *Locker) notAdopted(ctx context.Context, claim Claim, adopted []*hold, owner string, err error) error {
	failed, rest := claim.parts[len(adopted)], claim.parts[len(adopted)+1:]

	if loss := lossIn(err); loss != nil {
		for _, h := range adopted {
			l.settle(ctx, h.request)
		}

		for _, part := range rest {
			l.settleClaim(ctx, part)
		}

		return failed.lost(loss)
	}

	for i, h := range adopted {
		l.giveBack(ctx, claim.parts[i], h.request.Owner, false)
	}

	if uncertain(err) {
		l.giveBack(ctx, failed, owner, true)
	}

	return fmt.Errorf("adopt lock %q: %w", claim.Name(), ownTime(ctx, err))
}

// settleClaim releases, in the background, a grant that waits to be adopted, for as long as its lease may run.
func (l *Locker) settleClaim(ctx context.Context, part claimed) {
	r := part.request(&l.settings)
	r.Owner, r.Lease, r.From = part.Owner, part.Lease, nil

	l.settle(ctx, r)
}

// giveBack makes a grant a claim's again that was adopted by an owner whom nobody has: at once, so that the claim can be used again, and
// in the background if the database does not answer. If that is a doubt it is looked for it several times, as it may come late.
func (l *Locker) giveBack(ctx context.Context, part claimed, owner string, doubt bool) {
	r := part.request(&l.settings)
	r.Owner, r.Lease, r.LockDelay, r.Holder.PID = part.Owner, part.Lease, part.Delay, 0
	back := r
	back.From = &strategies.Source{Owner: owner, Token: part.Token, Last: part.Last}

	give := func(ctx context.Context) error {
		stands, err := strategies.AcquireOne(ctx, l.strategy, r)
		if err == nil {
			err = strategies.RenewOne(ctx, l.strategy, stands, 0)
		}

		if lossIn(err) != nil {
			_, err = strategies.AcquireOne(ctx, l.strategy, back)
		}

		if loss := lossIn(err); loss != nil {
			err = nil // it has ended, or is somebody else's
		}

		return err
	}

	if err := call.Bounded(context.WithoutCancel(ctx), endTime, give); err == nil && !doubt {
		return
	}

	e := newEnding(ctx, part.Name, part.Lease, give)
	e.looks = lookTimes(e.looks[0])
	e.until = e.until.Add(lastLook)

	l.background.start(e)
}

// CheckClaim asks the database whether the lock of a claim waits to be adopted. nil: it does. Errors are those of [Locker.Adopt], except
// that a recovery pause is none.
func (l *Locker) CheckClaim(ctx context.Context, claim Claim) error {
	return l.useClaim(ctx, "check", claim, nil, func(ctx context.Context, g strategies.Grant, _ time.Duration) error {
		return strategies.RenewOne(ctx, l.strategy, g, 0)
	})
}

// ExtendClaim lets the lease of a lock that waits to be adopted run for at least d from now on. The claim stays the same. Errors are
// those of [Locker.CheckClaim].
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

// ReleaseClaim releases a lock that waits to be adopted: each of its names that nobody else has. It may be called again, and returns nil
// if the lock was released already and nobody else has it. Errors are those of [Locker.CheckClaim].
func (l *Locker) ReleaseClaim(ctx context.Context, claim Claim) error {
	return l.useClaim(ctx, "release", claim, nil, func(ctx context.Context, g strategies.Grant, _ time.Duration) error {
		// After the end of the lease a release would end the lock delay.
		if loss := lossIn(strategies.RenewOne(ctx, l.strategy, g, 0)); loss != nil && loss.Reason == ReasonExpired {
			return loss
		}

		contended, err := strategies.ReleaseOne(ctx, l.strategy, g)
		if err == nil && contended {
			l.listener.call(ctx, claim.Name())
		}

		return err
	})
}

// useClaim does something with the grant of each name of a claim, as it stands, and returns the first error.
func (l *Locker) useClaim(
	ctx context.Context, verb string, claim Claim, options []LockOption, do func(context.Context, strategies.Grant, time.Duration) error,
) error {
	set, err := l.claimSettings(ctx, verb, claim, options)
	if err != nil {
		return err
	}

	var first error

	for _, part := range claim.parts {
		r := part.request(set)
		r.Owner, r.LockDelay, r.MinHold = part.Owner, part.Delay, 0

		err := call.Bounded(ctx, attemptTime, func(ctx context.Context) error {
			g, err := strategies.AcquireOne(ctx, l.strategy, r)
			if err != nil {
				return err
			}

			return do(ctx, g, set.lease)
		})

		if loss := lossIn(err); loss != nil {
			err = part.lost(loss)
		} else if err != nil {
			err = fmt.Errorf("%s lock %q: %w", verb, claim.Name(), ownTime(ctx, err))
		}

		first = cmp.Or(first, err)
	}

	return first
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

	if loss.Reason == ReasonTakenOver && loss.SuccessorToken == p.Last {
		loss.Reason = ReasonAdopted
	}

	return &loss
}

// passTries is how often a grant is asked to go over that gets no answer, and passPause how long to wait for a transaction that has its
// row locked, between looks.
const (
	passTries = 3
	passPause = 10 * time.Millisecond
)

// pass has a grant go over to another owner. It is asked again while that is not known to be done, which changes nothing then, and while a
// transaction has the row locked, for as long as an attempt may take. An error after which it may have been done is uncertain.
func (l *Locker) pass(ctx context.Context, r strategies.Request) (grant strategies.Grant, start instant, err error) {
	name, _ := strategies.SplitSlot(r.Name)

	var busy, doubt error // what it has waited for, and what may have been done

	for began, try := time.Now(), 1; ; {
		start = now()
		grant, err = call.Limited(ctx, attemptTime, func(ctx context.Context) (strategies.Grant, error) {
			return strategies.AcquireOne(ctx, l.strategy, r)
		})

		if uncertain(err) {
			doubt = err
		}

		held := new(HeldError)

		switch waits := errors.As(err, &held) && !held.Recovering || errors.Is(err, strategies.ErrBusy); {
		case err == nil, lossIn(err) != nil:
			return grant, start, err
		case ctx.Err() != nil, isAnswer(err) && !waits, waits && time.Since(began) >= attemptTime, try == passTries:
			return grant, start, cmp.Or(doubt, busy, asHeld(name, err))
		case waits:
			busy = asHeld(name, err)

			sleep(ctx, passPause/2+jitter(passPause))
		default:
			sleep(ctx, backoff(try, firstRetry, lastRetry))

			try++
		}
	}
}
