package model

import (
	"fmt"

	"github.com/sqllock/sqllock/test/model/internal/walk"
)

// The promises that the search checks, as docs/guarantees.md makes them.
const (
	OneAtATime    = "two clients trust their locks at the same time"
	NotTold       = "a name was granted while the holder before still trusted its lock"
	TokensGrow    = "a grant has a token that is not larger than that of an earlier grant"
	TokenKept     = "a holder's token is not that of its grant"
	OwnGrantOnly  = "a late handle touched the grant of its successor"
	NoStaleCommit = "a guarded transaction was committed after a later grant"
	LossIsFinal   = "a lock that was lost is held again"
	FreeInALease  = "a name is still taken a lease after all clients stopped"
	NoDeadlock    = "nothing can happen any more"
)

// Result is what a search found.
type Result = walk.Result

// Search visits every state that the protocol can reach, the nearest first, until
// one breaks a promise.
func (p Protocol) Search() Result {
	return walk.Model[state, step]{
		Each: func(s state, emit func(step, state, string)) { p.each(s, emit) },
		Check: func(s state, steps int) string {
			switch {
			case steps == 0 && s.now < p.Scope.Horizon:
				return NoDeadlock
			case !p.freed(s):
				return FreeInALease
			default:
				return ""
			}
		},
		Line: func(st step, s state) string {
			return fmt.Sprintf("%-2s %-34s %s", who(st.who), st.what+" "+st.kind.String(), &s)
		},
	}.Search(state{})
}

// each lists all steps from a state.
func (p Protocol) each(s state, emit emit) {
	p.world(s, emit)

	for i := range int8(clients) {
		p.client(s, i, emit)
	}
}
