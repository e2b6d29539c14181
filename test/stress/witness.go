//go:build unix

package stress

import (
	"context"
	"sync"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// guarder is a strategy whose locks can be used in transactions.
type guarder interface {
	strategies.Strategy
	strategies.Guarder
}

// lined is one that has a line for each name.
type lined interface {
	guarder
	strategies.Queuer
}

// witness writes down what a locker asks a strategy about the lines: who enters one, who leaves it, and who is
// granted a name. It changes nothing.
type witness struct {
	lined

	log    *logbook
	locker int // of those of the worker, each of which stands in line for itself

	mutex sync.Mutex
	first map[string]instant // by owner: when it asked first, if it is in no line and has no answer yet
}

// witnessed returns the strategy with a witness, and as it is if it has no lines: some known-bad variants.
func witnessed(inner strategies.Strategy, log *logbook, locker int) strategies.Strategy {
	with, ok := inner.(lined)
	if !ok {
		return inner
	}

	w := &witness{lined: with, log: log, locker: locker, first: map[string]instant{}}

	// The core asks for it by type.
	if placer, ok := inner.(strategies.Placer); ok {
		return placeWitness{w, placer}
	}

	return w
}

type placeWitness struct {
	*witness
	strategies.Placer
}

// acquisitionKey is where the context of an acquisition has its number.
type acquisitionKey struct{}

// Enqueue writes down who is in line from now on. The ticket was drawn between the call and the return. Of several nothing is
// written down: the call does not say whose acquisitions they are.
func (w *witness) Enqueue(ctx context.Context, all []strategies.Waiter, ttl time.Duration) ([]bool, []error) {
	began := now()

	taken, errs := w.lined.Enqueue(ctx, all, ttl)
	who := all[0]

	// Only the first time is told by the acquisition itself. If its context has ended, the answer is for nobody.
	if id, ok := ctx.Value(acquisitionKey{}).(int64); ok && len(all) == 1 && errs[0] == nil && ctx.Err() == nil {
		w.log.write(record{
			Time: now(), Op: opLine, Phase: phaseEnter, ID: id, Name: who.Name, Wait: who.ID, Locker: w.locker, Began: began,
		})
	}

	return taken, errs
}

// Leave writes down who may be out of line from now on.
func (w *witness) Leave(ctx context.Context, process string, ids []string) error {
	for _, id := range ids {
		w.log.write(record{Time: now(), Op: opLine, Phase: phaseLeave, Wait: id, Locker: w.locker})
	}

	return w.lined.Leave(ctx, process, ids)
}

// Acquire writes down grants.
func (w *witness) Acquire(ctx context.Context, all []strategies.Request) ([]strategies.Grant, []error) {
	began := make([]instant, len(all))
	for i, r := range all {
		began[i] = w.asks(r)
	}

	granted, errs := w.lined.Acquire(ctx, all)

	for i, r := range all {
		w.answered(r, began[i], granted[i], errs[i])
	}

	return granted, errs
}

// asks returns when the owner of a request asked first.
func (w *witness) asks(r strategies.Request) instant {
	t := now()

	if r.Wait != "" || r.From != nil {
		return t
	}

	w.mutex.Lock()
	defer w.mutex.Unlock()

	if first, ok := w.first[r.Owner]; ok {
		return first
	}

	w.first[r.Owner] = t

	return t
}

func (w *witness) answered(r strategies.Request, began instant, g strategies.Grant, err error) {
	if err != nil || r.From != nil { // or it goes over from another owner, whom the line let pass
		return
	}

	w.log.write(record{
		Time: now(), Op: opLine, Phase: phaseGrant, Name: r.Name, Owner: r.Owner, Token: g.Token, Wait: r.Wait, Locker: w.locker, Began: began,
	})

	w.mutex.Lock()
	defer w.mutex.Unlock()

	delete(w.first, r.Owner)
}
