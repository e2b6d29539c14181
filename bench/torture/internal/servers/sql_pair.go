package servers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/sqllock/sqllock/test/servers"
)

// pair is a primary, and a standby that takes its place once.
type pair struct {
	sqlServer

	version  string
	both     *servers.Replicated
	promoted atomic.Bool
}

func (p *pair) dsn() string {
	if p.promoted.Load() {
		return p.both.StandbyDSN()
	}

	return p.both.PrimaryDSN()
}

func (p *pair) describe(ctx context.Context) error {
	version, err := p.ask(ctx, p.dsn())
	p.version = version + ", a standby, asynchronous"

	return err
}

func (p *pair) Version() string                  { return p.version }
func (p *pair) Endpoints() []string              { return p.endpoints(p.dsn()) }
func (p *pair) DSN(_ int, address string) string { return p.at(p.dsn(), address) }
func (p *pair) Kill(ctx context.Context) error   { return p.both.Crash(ctx) }

// Restart is not what a primary that has a standby gets.
func (*pair) Restart(context.Context) error {
	return errors.New("a primary with a standby is not started again: call FailOver")
}

// Lag lets the standby have all that was committed until now, and nothing more.
func (p *pair) Lag(ctx context.Context) error {
	if err := p.both.CaughtUp(ctx); err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}

	return p.both.Cut(ctx)
}

func (p *pair) FailOver(ctx context.Context) error {
	if err := p.both.Crash(ctx); err != nil {
		return fmt.Errorf("kill the primary: %w", err)
	}

	if err := p.both.Promote(ctx); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}

	p.promoted.Store(true)

	return nil
}

func (p *pair) Close() error { return p.both.Close() }
