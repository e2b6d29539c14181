package sqllocktest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/strategies"
)

// MemoryTx is a transaction of a Memory, for Lock.Guard and Lock.ReleaseTx. It
// keeps no data; what was guarded in it nobody else is granted until Commit or
// Rollback.
type MemoryTx struct {
	store  *memoryStore
	ended  bool
	pinned []*memoryRow
	commit []func()
}

// Begin opens a transaction.
func (m *Memory) Begin() *MemoryTx { return &MemoryTx{store: m.store} }

// Database is "memory".
func (*MemoryTx) Database() string { return memoryName }

var errTxEnded = errors.New("sqllocktest: the transaction has ended")

// Commit ends the transaction. What was released in it is free now.
func (tx *MemoryTx) Commit() error { return tx.end(true) }

// Rollback ends the transaction.
func (tx *MemoryTx) Rollback() error { return tx.end(false) }

func (tx *MemoryTx) end(commit bool) error {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()

	if tx.ended {
		return errTxEnded
	}

	tx.ended = true

	for _, row := range tx.pinned {
		delete(row.pins, tx)
	}

	if commit {
		for _, effect := range tx.commit {
			effect()
		}
	}

	return nil
}

// Lock locks the name's row, as a transaction of whatever other purpose may do.
func (tx *MemoryTx) Lock(name string) {
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()

	tx.pin(tx.store.row(name))
}

func (tx *MemoryTx) pin(row *memoryRow) {
	row.pins[tx] = struct{}{}
	tx.pinned = append(tx.pinned, row)
}

// Guard pins a grant until the transaction ends.
func (m *Memory) Guard(ctx context.Context, tx strategies.Tx, held strategies.Grant) error {
	return m.do(ctx, "guard", func(time.Time) error {
		g, err := memoryGrantOf(held)
		if err != nil {
			return err
		}

		mtx, row, err := g.in(tx)
		if err != nil {
			return err
		}

		mtx.pin(row)

		return nil
	})
}

// ReleaseTx releases a grant when the transaction commits, and records the mark then, if there is one.
func (m *Memory) ReleaseTx(ctx context.Context, tx strategies.Tx, held strategies.Grant, mark int64) error {
	return m.do(ctx, "releasetx", func(time.Time) error {
		g, ok := held.State.(*memoryGrant)
		if !ok {
			return fmt.Errorf("%w: %T is no writer's grant", strategies.ErrUnsupported, held.State)
		}

		mtx, row, err := g.in(tx)
		if err != nil {
			return err
		}

		mtx.pin(row)
		mtx.commit = append(mtx.commit, func() {
			if row, err := g.mine(); err == nil {
				row.mark = max(row.mark, mark)
				row.free("", "")
				mtx.store.tell(time.Now(), row)
			}
		})

		return nil
	})
}

// in returns the transaction, if it can guard the grant, and the grant's row.
func (g *memoryGrant) in(tx strategies.Tx) (*MemoryTx, *memoryRow, error) {
	mtx, ok := tx.(*MemoryTx)

	switch {
	case !ok || mtx.store != g.memory.store:
		return nil, nil, fmt.Errorf("%w: the transaction is of another database", strategies.ErrUnsupported)
	case mtx.ended:
		return nil, nil, errTxEnded
	}

	row, err := g.mine()
	if err == nil && row.token != g.last {
		err = &strategies.LostError{Reason: strategies.TakenOver, SuccessorToken: row.token}
	}

	return mtx, row, err
}
