package conformance_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
)

// stock has the pools of a mode and a strategy. One that a case has done with is the next one's: to make connections, and to plan what
// is sent on each for the first time, took most of PostgreSQL's processor time.
type stock struct {
	mu   sync.Mutex
	idle []pool
}

const (
	mostIdlePools = 2
	mostIdleConns = 3 // of a pool
)

// pool is an application's.
type pool interface {
	db() databases.DB
	// tidy ends the connections that are broken, and says whether nobody has one.
	tidy(ctx context.Context) bool
	close()
}

func newStock(t *testing.T) *stock {
	t.Helper()

	s := new(stock)

	t.Cleanup(func() {
		for _, p := range s.idle {
			p.close()
		}
	})

	return s
}

// take returns the database behind a pool: of one that was there before, or of a new one.
func (s *stock) take(t *testing.T, open func() pool) databases.DB {
	t.Helper()

	p := s.find()
	if p == nil {
		p = open()
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()

		if t.Failed() || !p.tidy(ctx) || !s.keep(p) {
			p.close()
		}
	})

	return p.db()
}

func (s *stock) find() pool {
	s.mu.Lock()
	defer s.mu.Unlock()

	last := len(s.idle) - 1
	if last < 0 {
		return nil
	}

	p := s.idle[last]
	s.idle = s.idle[:last]

	return p
}

func (s *stock) keep(p pool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.idle) == mostIdlePools {
		return false
	}

	s.idle = append(s.idle, p)

	return true
}

type poolOfPgx struct{ *pgxpool.Pool }

func (p poolOfPgx) db() databases.DB { return postgres.New(p.Pool) }

func (p poolOfPgx) tidy(ctx context.Context) bool {
	if stat := p.Stat(); stat.TotalConns() > stat.IdleConns() {
		return false
	}

	for i, conn := range p.AcquireAllIdle(ctx) {
		if i >= mostIdleConns || conn.Ping(ctx) != nil {
			_ = conn.Hijack().Close(ctx)
		} else {
			conn.Release()
		}
	}

	return true
}

func (p poolOfPgx) close() { p.Close() }

type poolOfStd struct {
	*sql.DB

	of func(*sql.DB) databases.DB
}

func (p poolOfStd) db() databases.DB { return p.of(p.DB) }

func (p poolOfStd) tidy(ctx context.Context) bool {
	var conns []*sql.Conn

	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()

	stats := p.Stats()

	for range stats.Idle {
		conn, err := p.Conn(ctx)
		if err != nil {
			return false
		}

		_ = conn.PingContext(ctx) // one that is broken does not go back into the pool
		conns = append(conns, conn)
	}

	return stats.InUse == 0
}

func (p poolOfStd) close() { _ = p.Close() }
