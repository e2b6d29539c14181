// Command etcdcut shows that the Session of an etcd concurrency.Mutex can be done later than another one has the lock, when the network
// of its holder is cut. How much later depends on when: the client looks once a second whether its lease has run out. So this is
// tried eight times at once, and the longest counts.
//
// Its documentation says that Done "closes when the lease is orphaned, expires, or is otherwise no longer being refreshed":
// https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency#Session.Done. etcd says that the lock alone excludes nobody, and that what
// it protects has to check the revision: https://etcd.io/docs/v3.6/learning/why/#notes-on-the-usage-of-lock-and-lease.
//
//	go run ./smallest/etcdcut host:2379
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	client "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/sqllock/sqllock/bench/torture/smallest/silent"
)

func main() {
	times := make(chan [2]float64)

	for i := range 8 {
		go func() { times <- attempt(fmt.Sprintf("/smallest/%d", i), time.Duration(i)*200*time.Millisecond) }()
	}

	var most [2]float64

	for range 8 {
		if t := <-times; most[1] == 0 || t[1]-t[0] > most[1]-most[0] {
			most = t
		}
	}

	fmt.Printf("second: granted %.2f s after the first's network was cut\n", most[0])
	fmt.Printf("first: told by Session.Done %.2f s after the cut\n", most[1])
}

// attempt returns when the second had the lock, and when the first was told, in seconds after the cut.
func attempt(name string, delay time.Duration) (times [2]float64) {
	var firsts, seconds silent.Network // that of the second is never cut

	first, second := open(&firsts), open(&seconds)
	check(concurrency.NewMutex(first, name).Lock(context.Background()))
	<-time.After(delay)
	firsts.Cut()

	began := time.Now()
	told := make(chan float64, 1)

	go func() {
		<-first.Done()
		told <- time.Since(began).Seconds()
	}()

	check(concurrency.NewMutex(second, name).Lock(context.Background()))
	times[0] = time.Since(began).Seconds()
	times[1] = <-told
	check(second.Close())

	return times
}

func open(network *silent.Network) *concurrency.Session {
	c, err := client.New(client.Config{
		Endpoints: []string{os.Args[1]},
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return network.Dial(ctx, "tcp", address)
		})},
	})
	check(err)

	session, err := concurrency.NewSession(c, concurrency.WithTTL(3))
	check(err)

	return session
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
