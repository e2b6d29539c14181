package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// TestNetworkCut: nothing passes any more, and nobody hears of it. The server has
// the sessions, and what they hold, until it ends them by itself.
func TestNetworkCut(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"postgres", "mysql", "mariadb"} {
		for _, strategy := range catalog.All() {
			t.Run(server+"/"+strategy.Name+"/connections", func(t *testing.T) {
				t.Parallel()

				near, far, network := overNetwork(t, server)
				cutConnections(t, strategy.Make(near), strategy.Make(far), network)
			})

			t.Run(server+"/"+strategy.Name+"/server", func(t *testing.T) {
				t.Parallel()

				_, far, network := overNetwork(t, server)
				cutServer(t, strategy.Make(far), network)
			})
		}
	}
}

// cutConnections cuts the connections that there are, and new ones go through. Then
// the lock can be ended, also though its own session cannot be reached.
func cutConnections(t *testing.T, near, far strategies.Strategy, network *network) {
	t.Helper()

	beside := lockerOn(t, near)
	locker := lockerOn(t, far)
	name := uniqueName()

	lock, err := locker.Acquire(t.Context(), name, sqllock.WithLease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}

	network.cut()

	if err := lock.Release(t.Context()); errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Release() = %v, want nil, or that it goes on", err)
	}

	if err := locker.Close(t.Context()); err != nil {
		t.Errorf("Close() = %v, want nil: the database can be reached", err)
	}

	next, err := beside.TryAcquire(t.Context(), name)
	if err != nil {
		t.Fatalf("TryAcquire() of another after Close = %v, want the lock", err)
	}

	if err := next.Release(t.Context()); err != nil {
		t.Errorf("Release() of the other = %v", err)
	}
}

// cutServer lets nothing through. Then nobody knows that the lock is free.
func cutServer(t *testing.T, far strategies.Strategy, network *network) {
	t.Helper()

	locker, err := sqllock.New(far)
	if err != nil {
		t.Fatal(err)
	}

	name := uniqueName()

	lock, err := locker.Acquire(t.Context(), name, sqllock.WithLease(time.Minute))
	if err != nil {
		t.Fatal(err)
	}

	network.down()

	if err := lock.Release(t.Context()); err == nil || errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Release() without a network = %v, want that it goes on", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if err := locker.Close(ctx); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("Close() without a network = %v, want an error that names %q", err, name)
	}
}

// overNetwork returns a database, and the same behind a network.
func overNetwork(t *testing.T, server string) (near, far databases.DB, n *network) {
	t.Helper()

	n = new(network)
	near, far = behind(t, server, false, func(client net.Conn, address string) {
		upstream, err := net.Dial("tcp", address)
		if err != nil {
			_ = client.Close()

			return
		}

		n.connect(client, upstream)
	})

	// Before the database is dropped, or sessions that were cut keep it.
	t.Cleanup(n.close)

	return near, far, n
}

// behind returns a database, and the same with something between: it gets each
// connection, and the address of the server. With interpolate a statement of MySQL is
// one packet.
func behind(t *testing.T, server string, interpolate bool, pass func(client net.Conn, address string)) (near, far databases.DB) {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = listener.Close() })

	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("listens on %s", listener.Addr())
	}

	accept := func(address string) {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}

			go pass(client, address)
		}
	}

	if server == "postgres" {
		config := postgresDatabase(t, postgresConfig(t))
		near = postgres.NewStd(stdPool(t, config))

		go accept(fmt.Sprintf("%s:%d", config.Host, config.Port))

		config = config.Copy()
		config.Host, config.Port = "127.0.0.1", address.AddrPort().Port()
		config.Fallbacks = nil

		return near, postgres.NewStd(stdPool(t, config))
	}

	config := mysqlDatabase(t, mysqlConfig(t, server))
	near = mysql.New(mysqlPool(t, config))

	go accept(config.Addr)

	config = config.Clone()
	config.Addr = address.String()
	config.InterpolateParams = interpolate

	return near, mysql.New(mysqlPool(t, config))
}

// network is the way to a server. It passes no end of a connection that was cut.
type network struct {
	mu     sync.Mutex
	closed bool
	silent bool
	ways   []*way
	dead   []*way // that were cut
}

// way is a connection over the network.
type way struct {
	client, server net.Conn
	cut            chan struct{}
}

func (n *network) connect(client, server net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()

	w := &way{client, server, make(chan struct{})}

	switch {
	case n.closed:
		_, _ = client.Close(), server.Close()

		return
	case n.silent:
		close(w.cut)

		n.dead = append(n.dead, w)
	default:
		n.ways = append(n.ways, w)
	}

	go w.pass(server, client)
	go w.pass(client, server)
}

// pass copies until the connection ends or is cut.
func (w *way) pass(to, from net.Conn) {
	data := make([]byte, 16<<10)

	for {
		n, err := from.Read(data)

		select {
		case <-w.cut:
			return
		default:
		}

		if _, failed := to.Write(data[:n]); err != nil || failed != nil {
			_, _ = to.Close(), from.Close()

			return
		}
	}
}

// cut lets nothing through on the connections that there are.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, w := range n.ways {
		close(w.cut)
	}

	// They are closed with the network.
	n.dead = append(n.dead, n.ways...)
	n.ways = nil
}

// silence lets nothing through on connections to come.
func (n *network) silence() {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.silent = true
}

// down is cut, also of connections to come.
func (n *network) down() {
	n.silence()
	n.cut()
}

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.closed = true

	for _, w := range append(n.dead, n.ways...) {
		_, _ = w.client.Close(), w.server.Close()
	}
}
