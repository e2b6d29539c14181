package quorum

// A strategy remembers of which owners something may be where, so that a server which cannot have anything need not be reached
// to settle what another may have. It is no more than that: of an owner that it does not know all servers are asked.

// mostKnown bounds it. Holders that were killed by a panic of theirs, for example, never end their grants.
const mostKnown = 4096

// remember notes an attempt that begins.
func (s *Strategy) remember(g *grant) {
	s.mu.Lock()
	defer s.mu.Unlock()

	owner := g.request.Owner
	if _, again := s.known[owner]; again {
		g = nil
	}

	for other := range s.known {
		if len(s.known) < mostKnown {
			break
		}

		delete(s.known, other)
	}

	s.known[owner] = g
}

// attempt is the only attempt of an owner; nil if it is not known, or there were several.
func (s *Strategy) attempt(owner string) *grant {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.known[owner]
}

// forget notes that an attempt has ended, unless something may be left of it.
func (s *Strategy) forget(g *grant) (left bool) {
	if g.count((*seat).suspect) > 0 {
		return true
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.known[g.request.Owner] == g {
		delete(s.known, g.request.Owner)
	}

	return false
}
