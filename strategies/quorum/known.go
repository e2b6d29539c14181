package quorum

import "sync"

// known remembers of which owners something may be where, so that a server which cannot have anything need not be reached to
// settle what another may have. It is no more than that: of an owner that it does not know all servers are asked.
type known struct {
	mu     sync.Mutex
	grants map[string]*grant // by owner; nil: there were several attempts
}

// mostKnown bounds it. Holders that were killed by a panic of theirs, for example, never end their grants.
const mostKnown = 4096

// add notes an attempt that begins.
func (k *known) add(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.grants == nil {
		k.grants = make(map[string]*grant)
	}

	if _, again := k.grants[g.request.Owner]; again {
		k.grants[g.request.Owner] = nil

		return
	}

	for owner := range k.grants {
		if len(k.grants) < mostKnown {
			break
		}

		delete(k.grants, owner)
	}

	k.grants[g.request.Owner] = g
}

// grant is the only attempt of an owner; nil if it is not known, or there were several.
func (k *known) grant(owner string) *grant {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.grants[owner]
}

// forget notes that nothing is left of an attempt.
func (k *known) forget(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if k.grants[g.request.Owner] == g {
		delete(k.grants, g.request.Owner)
	}
}
