package grants

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
)

// Listen tells a process of its turns, where the database can tell. Where it tells of
// commits only, there is something to look for after each.
func (q Queue) Listen(ctx context.Context, process string, ready func(), turn func(name string, line int64), look func()) error {
	s := q.store

	listener, ok := s.db.(databases.Listener)
	if !ok {
		return fmt.Errorf("%w: notifications on %s", strategies.ErrUnsupported, s.sql.Name)
	}

	if s.sql.OneWriter {
		// Who begins to wait asks sooner than a commit is seen, and has to go on asking.
		ready = func() {}
	}

	own := channelOf + process

	err := listener.Listen(ctx, []string{own, allChannel}, ready, func(channel, payload string) {
		// Whoever may connect can send anything.
		line, name, _ := strings.Cut(payload, " ")
		if n, err := strconv.ParseInt(line, 10, 64); channel == own && err == nil {
			turn(name, n)
		} else {
			look()
		}
	})
	if errors.Is(err, databases.ErrNoNotifications) {
		return fmt.Errorf("%w: %w", strategies.ErrUnsupported, err)
	}

	return err
}
