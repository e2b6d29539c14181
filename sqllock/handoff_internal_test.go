package sqllock

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// TestNext is about which lock is handed on, and that the next holder trusts it
// for no longer than the one before did.
func TestNext(t *testing.T) {
	t.Parallel()

	const lease = 30 * time.Second

	for _, c := range []struct {
		name   string
		change func(*hold)
		handed bool
	}{
		{"held", func(*hold) {}, true},
		{"renewed a while ago", func(h *hold) { h.confirmed = ago(lease / 3) }, true},
		{"in the second half of its trust window", func(h *hold) { h.confirmed = ago(lease * 6 / 10) }, false},
		{"past its trust window", func(h *hold) { h.confirmed = ago(lease) }, false},
		{"ended", func(h *hold) { h.ended = ErrReleased }, false},
		{"guarded", func(h *hold) { h.pinned = true }, false},
		{"released in a transaction", func(h *hold) { h.releasing = true }, false},
		{"handed on for long enough", func(h *hold) { h.grantedAt = ago(handOffTime) }, false},
	} {
		set := defaults()
		set.lease = lease
		h := &hold{
			locker: new(Locker), settings: &set, grant: strategies.Grant{Token: 7, Last: 8}, grantedAt: now(), acquired: now(),
			state: state{lease: lease, extended: lease, confirmed: now()},
		}
		h.open(t.Context())
		c.change(h)

		trusted, over := h.left(now()), h.ended != nil
		next := h.next(&waiter{set: &set, ctx: t.Context()}, handOffTime)

		switch {
		case (next != nil) != c.handed:
			t.Errorf("%s: handed on = %t, want %t", c.name, next != nil, c.handed)
		case next == nil && !over && h.ended != nil:
			t.Errorf("%s: the lock ended with %v though it was not handed on", c.name, h.ended)
		case next != nil && (next.grant.Token != 8 || h.err() == nil):
			t.Errorf("%s: token %d and Err() %v, want 8 and an end", c.name, next.grant.Token, h.err())
		case next != nil && (h.ctx.Err() == nil || next.ctx.Err() != nil):
			t.Errorf("%s: contexts of the lock and the next: %v and %v, want that the first has ended", c.name, h.ctx.Err(), next.ctx.Err())
		case next != nil && next.left(now()) > trusted:
			t.Errorf("%s: the next holder trusts the lock for %s, the one before did for %s", c.name, next.left(now()), trusted)
		}
	}
}
