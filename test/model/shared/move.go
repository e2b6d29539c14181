package shared

// move is one statement of a process.
type move struct {
	s      state
	i      int
	p      Protocol
	renews bool // it renews its lease, in place of the release
	loses  bool // the answer is lost
	broken string
}

// step sends the next statement. false: there is none.
func (m *move) step() bool {
	c := &m.s.processes[m.i]
	answers := (c.at == joins || c.at == entered) && m.s.lost < m.p.Scope.Unanswered

	switch {
	case m.renews && (c.at != held || c.trust == 0 || m.i >= m.p.Scope.Readers), m.loses && !answers:
		return false
	case m.i >= m.p.Scope.Readers:
		return m.write(c)
	}

	switch c.at {
	case idle:
		return m.look(c)
	case joining:
		if m.p.Fault == JoinBeforeEnter {
			return m.join(c, joins)
		}

		return m.enter(c, joins)
	case joins:
		if m.p.Fault == JoinBeforeEnter {
			m.enter(c, held)

			return m.grant(c, c.token)
		}

		return m.join(c, held)
	case begins:
		return m.enter(c, entered)
	case entered:
		return m.begin(c)
	case held:
		return m.hold(c)
	case kept:
		return m.renewed(c)
	default:
		return m.leave(c)
	}
}

func (m *move) lease() int8 { return m.p.Scope.Leases[m.i] }

// mine is the owner that a process's own grant has: another one after each that the row had.
func (m *move) mine(c *process) int8 {
	if m.p.Fault == PhaseOfOwner {
		return c.round*most + int8(m.i) + 1
	}

	return m.s.token*most + int8(m.i) + 1
}

// look is State.
func (m *move) look(c *process) bool {
	c.timer = m.lease()

	switch {
	case c.round == m.p.Scope.Rounds:
		return false
	case m.p.Fault == WriterLooks:
		c.at, c.phase = begins, m.mine(c)
	case m.p.reads(m.s.owner) && m.s.left > 0:
		c.at, c.phase, c.token = joining, m.s.owner, m.s.token
	case m.s.left <= 0:
		c.at, c.phase = begins, m.mine(c)
	default:
		return false
	}

	return true
}

// enter is Enter.
func (m *move) enter(c *process, next at) bool {
	lease := m.lease()
	if row := m.s.shares[m.i]; row.phase == c.phase {
		lease = max(lease, row.left)
	}

	m.s.shares[m.i] = share{c.phase, lease}
	c.at = next

	return true
}

// join is Join.
func (m *move) join(c *process, next at) bool {
	if m.s.owner != c.phase || m.s.left <= 0 {
		c.at = leaving

		return true
	}

	m.s.left = max(m.s.left, m.lease())
	m.joined()
	c.at = next

	if next != held {
		return true
	}

	return m.grant(c, m.s.token)
}

// joined changes the number of joins.
func (m *move) joined() {
	for i := range m.s.processes {
		m.s.processes[i].same = false
	}
}

// begin is Acquire for a phase.
func (m *move) begin(c *process) bool {
	switch {
	case m.p.Fault == WriterLooks && m.s.left > 0 && m.s.owner > 0 || m.s.owner != c.phase && m.s.left > 0:
		c.at = leaving

		return true
	case m.p.Fault == WriterLooks: // the readers' rows are all there is
		return m.grant(c, c.token)
	case m.s.owner != c.phase:
		m.s.token++
	}

	m.s.owner, m.s.left, c.token = c.phase, max(m.s.left, m.lease()), m.s.token

	return m.grant(c, m.s.token)
}

// grant is the answer to the last statement.
func (m *move) grant(c *process, token int8) bool {
	if c.token != token && c.timer > 0 {
		m.broken = TokensGrow
	}

	if m.loses {
		m.s.lost++
		*c = process{round: c.round}
	} else {
		c.at, c.granted, c.trust, c.timer = held, true, c.timer, 0
	}

	return true
}

// hold is what a reader does next: Keep, or the release.
func (m *move) hold(c *process) bool {
	if !m.renews {
		c.at, c.trust, c.timer = leaving, 0, 0

		return m.leave(c)
	}

	c.timer = m.lease()

	if m.p.Fault == ProlongBeforeKeep {
		m.prolong(c)
	} else {
		m.keep(c)
	}

	return true
}

// renewed is the second statement of a renewal.
func (m *move) renewed(c *process) bool {
	if m.p.Fault == ProlongBeforeKeep {
		m.keep(c)
	} else {
		m.prolong(c)
	}

	if c.at == kept {
		c.at = held

		if c.trust > 0 { // otherwise it is lost, and stays so
			c.trust = c.timer
		}
	}

	c.timer = 0

	return true
}

// keep is Keep.
func (m *move) keep(c *process) {
	if row := &m.s.shares[m.i]; row.phase == c.phase {
		row.left = max(row.left, m.lease())
		c.at = kept
	} else {
		c.at, c.trust, c.timer = held, 0, 0
	}
}

// prolong is Prolong.
func (m *move) prolong(c *process) {
	if m.s.owner != c.phase {
		c.at, c.trust, c.timer = held, 0, 0

		return
	}

	m.s.left = max(m.s.left, m.lease())
	c.at = kept

	if m.p.Fault != ProlongUncounted {
		m.joined()
	}
}

// leave is a release, or what follows a refusal.
func (m *move) leave(c *process) bool {
	c.timer = 0

	switch {
	case m.p.Fault == WriterLooks:
		m.out(c)
		m.done(c)
	case c.at == leaving && m.p.Fault == LeaveBeforePhase:
		m.out(c)

		c.at = phased
	case c.at == phased && m.p.Fault == LeaveBeforePhase:
		m.phase(c)
		m.verdict(c)
	case c.at == leaving || c.at == again:
		next := phased
		if c.at == again {
			next = left
		}

		m.phase(c)

		c.at = next
	case c.at == phased:
		m.out(c)
		m.verdict(c)
	case c.at == left:
		m.count(c)
	case c.at == counted && m.p.Fault == JoinsReadLate:
		c.same, c.at = true, reread
	default:
		m.end(c)
	}

	return true
}

// phase is Phase.
func (m *move) phase(c *process) { c.owner, c.rest, c.same, c.at = m.s.owner, m.s.left, true, left }

// out is Leave.
func (m *move) out(c *process) {
	row := m.s.shares[m.i]
	c.had = c.granted && row.phase == c.phase && row.left > 0 && m.s.owner == c.phase && m.s.left > 0
	m.s.shares[m.i] = share{}
}

// verdict takes a release for one of a lock that was lost, or not.
func (m *move) verdict(c *process) {
	c.at = left

	if c.had && c.owner != c.phase && (m.s.owner != 0 || m.s.token != c.token) {
		m.broken = FalseLoss
	}
}

// count is Longest.
func (m *move) count(c *process) {
	c.at, c.longest = counted, 0

	for _, row := range m.s.shares {
		if row.phase == c.owner {
			c.longest = max(c.longest, row.left)
		}
	}

	if !m.p.reads(c.owner) || c.longest > 0 && (c.longest >= c.rest || m.p.Fault == NeverShortened || m.p.Fault == EndInOneStatement) {
		m.done(c)
	}
}

// end is End or Shorten.
func (m *move) end(c *process) {
	compared := m.p.Fault != EndInOneStatement && (m.p.Fault != EndUncompared || c.longest > 0)

	switch {
	case m.s.owner != c.owner || compared && !c.same:
		c.at = again

		if m.p.Fault == EndInOneStatement {
			m.done(c)
		}

		return
	case c.longest > 0 && m.p.Fault == ShortenLengthens:
		m.s.left = c.longest
	case c.longest > 0:
		m.s.left = min(m.s.left, c.longest)
	default:
		m.s.owner, m.s.left = 0, 0
	}

	m.done(c)
}

// done ends an operation. Who was refused tries again.
func (m *move) done(c *process) {
	next := process{round: c.round}
	if c.granted {
		next.round++
	}

	*c = next
}

// write is what a writer does.
func (m *move) write(c *process) bool {
	free := m.s.left <= 0

	switch {
	case c.at == held:
		if m.s.owner == c.phase {
			m.s.owner, m.s.left = 0, 0
		}

		m.done(c)

		return true
	case c.round == m.p.Scope.Rounds || !free:
		return false
	case m.p.Fault == WriterLooks && c.at == idle:
		for _, row := range m.s.shares {
			if row.left > 0 {
				return false
			}
		}

		c.at = looked

		return true
	}

	c.timer, c.phase = m.lease(), m.mine(c)
	m.s.token++
	m.s.owner, m.s.left, c.token = c.phase, c.timer, m.s.token

	return m.grant(c, m.s.token)
}
