//go:build unix

package stress

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model of one lock, for the linearizability checker: it is free or held by an owner, and has a largest
// token.
//
//	acquire   the lock is free, and the token is the next
//	adopt     the lock is free, and the token is the largest
//	read      the lock is free and the token is the next, or readers have the lock, whose token it is
//	leave     ends that of one reader
//	fade      the same, at some time from the end of the trust window on
//	release   frees it, if the owner has it
//	expire    the same, at some time from the end of the trust window on
//	write     the owner's token is the largest: nobody was granted the lock since
//
// An acquisition whose outcome nobody learned may have happened or not. If it did, nobody relied on it, and it
// ended like one that expired; so it allows nothing that would not be allowed without it, and is left out.
//
// The next token: tokens grow in the order of grants, so the known ones must be granted in the order of their
// tokens. The model says which is next, and the checker need not try the others.
type lockState struct {
	owner   string // empty: nobody, or readers
	readers int
	rank    int // of the largest token among the known ones; 0: none
}

type lockInput struct {
	verb  string
	owner string
	rank  int
	token int64
}

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lockState), input.(lockInput) //nolint:forcetypeassert // we made them

		switch in.verb {
		case "acquire":
			return s.owner == "" && s.readers == 0 && in.rank == s.rank+1, lockState{owner: in.owner, rank: in.rank}
		case "adopt":
			return s.owner == "" && s.readers == 0 && in.rank == s.rank, lockState{owner: in.owner, rank: in.rank}
		case "release":
			return s.owner == in.owner, lockState{rank: s.rank}
		case "read":
			// A token that was read with before is of the same readers, some of whom may not be known.
			if s.owner == "" && in.rank == s.rank {
				return true, lockState{readers: s.readers + 1, rank: s.rank}
			}

			return s.owner == "" && s.readers == 0 && in.rank == s.rank+1, lockState{readers: 1, rank: in.rank}
		case "leave":
			return s.readers > 0 && in.rank == s.rank, lockState{readers: s.readers - 1, rank: s.rank}
		case "fade":
			if s.readers > 0 && in.rank == s.rank {
				s.readers--
			}

			return true, s
		case "expire":
			if s.owner == in.owner {
				s.owner = ""
			}

			return true, s
		default:
			return in.rank == s.rank, s
		}
	},
	DescribeOperation: func(input, _ any) string {
		in := input.(lockInput) //nolint:forcetypeassert // we made it

		return fmt.Sprintf("%s %d", in.verb, in.token)
	},
	DescribeState: func(state any) string {
		s := state.(lockState) //nolint:forcetypeassert // we made it
		if s.owner == "" {
			return fmt.Sprintf("%d readers, #%d", s.readers, s.rank)
		}

		return fmt.Sprintf("held, #%d", s.rank)
	},
}

// linearTimeout bounds the checker. It takes milliseconds for a history that is in order.
const linearTimeout = time.Minute

// checkLinear asks whether all that was seen of a name could have happened one after the other.
func (h *history) checkLinear(name string, grants []*grant, folder string) []violation {
	operations := h.operations(name, grants)

	verdict, info := porcupine.CheckOperationsVerbose(lockModel, operations, linearTimeout)
	if verdict == porcupine.Ok {
		return nil
	}

	text := "no order of the operations explains what was seen"
	if verdict == porcupine.Unknown {
		text = fmt.Sprintf("the checker did not end within %s", linearTimeout)
	}

	picture := filepath.Join(folder, fmt.Sprintf("history-%d.html", slices.Index(h.Names, name)))

	file, err := os.Create(picture)
	if err == nil {
		err = cmp.Or(porcupine.Visualize(lockModel, info, file), file.Close())
	}

	if err != nil {
		text += fmt.Sprintf(" (no picture: %v)", err)
	} else {
		text += ", see " + filepath.Base(picture)
	}

	return []violation{{checkLinear, name, text}}
}

// operations is the history of a name as the checker wants it.
func (h *history) operations(name string, grants []*grant) []porcupine.Operation {
	var operations []porcupine.Operation

	add := func(process int, in lockInput, call, ret instant) {
		operations = append(operations, porcupine.Operation{
			ClientId: process + 1, Input: in, Call: int64(call), Return: int64(max(call, ret)),
		})
	}

	ranks := make(map[int64]int, len(grants))

	for _, g := range grants {
		if ranks[g.token] == 0 {
			ranks[g.token] = len(ranks) + 1
		}
	}

	for i, g := range grants {
		acquire, release, expire := "acquire", "release", "expire"
		if g.shared {
			acquire, release, expire = "read", "leave", "fade"
		} else if g.adopted {
			acquire = "adopt"
		}

		rank := ranks[g.token]
		add(g.process, lockInput{acquire, g.key(), rank, g.token}, g.call, g.ret)

		later := slices.IndexFunc(grants[i:], func(next *grant) bool { return next.token > g.token })

		switch end := h.end(g); {
		case g.released > 0 && end == g.freeing:
			add(g.process, lockInput{release, g.key(), rank, g.token}, g.freeing, g.released)
		case later > 0:
			// It has expired by the time that the next one was granted. The checker says if it cannot have.
			add(g.process, lockInput{expire, g.key(), rank, g.token}, end, grants[i+later].ret)
		}
	}

	for _, w := range h.guards {
		if w.name == name && w.committed {
			add(w.process, lockInput{"write", "", ranks[w.token], w.token}, w.commit, w.ret)
		}
	}

	return operations
}
