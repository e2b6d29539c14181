package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
)

var _ databases.Waker = (*DB)(nil)

const (
	// longestNap is how long a session sleeps at a time, and shortestNap what that comes down
	// to where connections do not last so long: the DSN may have a readTimeout.
	longestNap  = 2 * time.Second
	shortestNap = 250 * time.Millisecond
	// between is the least time after which a call is looked for that came between two naps.
	between = 5 * time.Millisecond
	// leastPool is how many connections a pool has at least of which one is to sleep.
	leastPool = 3
	// watch is how often it is looked whether the pool needs the connection.
	watch = 50 * time.Millisecond
)

// What is sent on the session that sleeps. The name of its lock is how it is called, see
// queue.call in package grants. SLEEP uses no table, so that it keeps nobody from changing one, and no
// backup from beginning; and DO returns no rows, so that max_execution_time does not end it. The
// log of slow statements is not for it.
var (
	named    = databases.Statement{Name: "listen.named", SQL: `SELECT COALESCE(GET_LOCK(UNHEX(?), 0), 0), VERSION()`, Args: []string{"channel"}}
	unlogged = databases.Statement{Name: "listen.unlogged", SQL: `SET SESSION long_query_time = 3600`}
	nap      = databases.Statement{Name: "listen.nap", SQL: `DO SLEEP(?)`, Args: []string{"seconds"}}
)

var errNeeded = errors.New("the pool has no connection to spare")

// Listen calls notified, without a payload, when the first of the channels was called,
// when that may have been missed, and sometimes for nothing. It cannot know who calls, on
// which server and with which privileges, and so does not call ready.
//
// MySQL has no notifications. But a session that sleeps can be woken: KILL QUERY
// ends its SLEEP, and needs no privilege for sessions of the same account. The
// session has a named lock, and is called by IS_USED_LOCK of the channel, which the server
// evaluates when it kills. So no session can be meant that is not asleep here, whatever ids begin anew
// and whatever proxy is between. The connection is of the pool, for MySQL's driver does not tell how
// to open another, and never goes back there. A pool that has none to spare gets it
// at once.
func (d *DB) Listen(ctx context.Context, channels []string, _ func(), notified func(channel, payload string)) error {
	stats := d.DB.Stats()
	most := stats.MaxOpenConnections

	switch {
	case !d.wakes:
		return fmt.Errorf("%w: without WakeWaiters", databases.ErrNoNotifications)
	case most > 0 && most < leastPool:
		return fmt.Errorf("%w: the pool has %d connections, and one to listen on takes %d", databases.ErrNoNotifications, most, leastPool)
	case most > 0 && stats.InUse+2 > most:
		return errNeeded
	}

	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}

	s := &sleeper{db: d, conn: conn, channel: channels[0], call: func() { notified(channels[0], "") }}
	defer conn.Discard()

	if err := s.begin(ctx); err != nil {
		return err
	}

	for {
		if err := s.sleep(ctx); err != nil {
			return err
		}
	}
}

// sleeper is a session that sleeps.
type sleeper struct {
	db      *DB
	conn    databases.Conn
	channel string
	call    func()
	gap     time.Duration // after which a nap has begun at the server
	waited  int64         // how often somebody has waited for a connection of the pool
}

// begin names the session. One before it, whose connection broke, has the name until it
// wakes and finds that out.
func (s *sleeper) begin(ctx context.Context) error {
	s.waited = s.db.DB.Stats().WaitCount
	got, version := 0, ""

	_, err := s.conn.Run(ctx, named, databases.Values{"channel": s.channel}, func(row databases.Row) error { return row(&got, &version) })

	switch {
	case err != nil:
		return fmt.Errorf("name the session that sleeps: %w", err)
	case isMariaDB(version, ""):
		return fmt.Errorf("%w: on MariaDB, where statements that wake can hold up each other", databases.ErrNoNotifications)
	case got != 1:
		return errors.New("another session has the name of the one that is to sleep")
	}

	began := time.Now()

	// A user may be forbidden to.
	_, err = s.conn.Run(ctx, unlogged, nil, nil)
	if err != nil && s.db.Classify(err) == databases.Unreachable {
		return err
	}

	s.gap = max(between, 2*time.Since(began))

	return nil
}

// sleep takes a nap, and says when it was woken.
func (s *sleeper) sleep(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	length := cmp.Or(time.Duration(s.db.nap.Load()), longestNap)
	began, woken := time.Now(), make(chan error, 1)

	go func() {
		_, err := s.conn.Run(ctx, nap, databases.Values{"seconds": length.Seconds()}, nil)
		woken <- err
	}()

	// Who called before the nap began is not heard.
	late, tick := time.After(s.gap), time.Tick(watch)

	for {
		select {
		case err := <-woken:
			return s.woke(ctx, err, length, time.Since(began))
		case <-late:
			s.call()
		case <-tick:
			if s.needed() {
				cancel(errNeeded)
			}
		}
	}
}

// woke takes in how a nap of some length ended after some time.
func (s *sleeper) woke(ctx context.Context, err error, length, after time.Duration) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && after >= length:
		s.db.broke.Store(false)

		return nil
	case err == nil, errors.Is(err, errInterrupted):
		s.call()

		return nil
	}

	// Once may be a restart.
	if s.db.broke.Swap(true) {
		s.db.nap.Store(int64(max(length/2, shortestNap)))
	}

	return fmt.Errorf("sleep: %w", err)
}

// errInterrupted is the error of a statement that KILL QUERY ended. SLEEP returns then, and others say so.
var errInterrupted = &mysql.MySQLError{Number: 1317}

// needed says whether somebody waits for a connection of the pool that has none.
func (s *sleeper) needed() bool {
	stats := s.db.DB.Stats()
	waits := stats.WaitCount > s.waited
	s.waited = stats.WaitCount

	return waits && stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}
