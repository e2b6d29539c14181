// Command pglockdo shows that the context of cirello.io/pglock's Client.Do goes on for long after another client has the lock, when
// the network of its holder is cut: lib/pq waits for an answer although the context of the heartbeat has ended.
//
// Its documentation says: "When the lock loss is detected in the heartbeat, it is going to cancel the context passed on to f":
// https://pkg.go.dev/cirello.io/pglock#Client.Do. Here nothing detects it until the read of the connection fails.
//
//	go run ./smallest/pglockdo postgres://user:password@host/database?sslmode=disable
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"cirello.io/pglock"
	"github.com/lib/pq"

	"github.com/sqllock/sqllock/bench/torture/smallest/silent"
)

func main() {
	ctx := context.Background()

	var firsts, seconds silent.Network // that of the second is never cut

	first, second := open(&firsts), open(&seconds)
	check(first.TryCreateTable())

	working := make(chan context.Context)

	go func() {
		check(first.Do(ctx, "smallest", func(work context.Context, _ *pglock.Lock) error {
			working <- work

			select {} // the work goes on
		}))
	}()

	work := <-working

	fmt.Println("first: granted")
	firsts.Cut()

	began := time.Now()
	lock, err := second.Acquire("smallest")
	check(err)

	fmt.Printf("second: granted %.1f s after the first's network was cut\n", time.Since(began).Seconds())

	select {
	case <-work.Done():
		fmt.Printf("first: told by the context of Do %.1f s after the cut\n", time.Since(began).Seconds())
	case <-time.After(10 * time.Second):
		fmt.Printf("first: not told %.1f s after the cut: the error of the context of Do is %v\n", time.Since(began).Seconds(), work.Err())
	}

	check(second.Release(lock))
}

func open(network *silent.Network) *pglock.Client {
	connector, err := pq.NewConnector(os.Args[1])
	check(err)
	connector.Dialer(dialer{network: network})

	client, err := pglock.New(sql.OpenDB(connector), pglock.WithLeaseDuration(3*time.Second), pglock.WithHeartbeatFrequency(time.Second))
	check(err)

	return client
}

// dialer has the method that lib/pq prefers to those of pq.Dialer.
type dialer struct {
	pq.Dialer

	network *silent.Network
}

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.network.Dial(ctx, network, address)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
