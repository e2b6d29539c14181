// Command zklock shows that a Lock of go-zookeeper/zk still says that it is held after its session has ended, in a network that was
// cut, and another one has the lock.
//
// Its documentation says of Lock that it "is a mutual exclusion lock", and nothing of the end of a session:
// https://pkg.go.dev/github.com/go-zookeeper/zk@v1.0.4#Lock. Whoever wants to know has to watch the events of the connection, too.
//
//	go run ./smallest/zklock host:2181
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sqllock/sqllock/bench/torture/smallest/silent"
)

func main() {
	var network silent.Network

	dialer := func(kind, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()

		return network.Dial(ctx, kind, address)
	}

	firstConn, _, err := zk.Connect([]string{os.Args[1]}, 3*time.Second, zk.WithDialer(dialer), zk.WithLogInfo(false))
	check(err)

	secondConn, _, err := zk.Connect([]string{os.Args[1]}, 3*time.Second, zk.WithLogInfo(false))
	check(err)

	first := zk.NewLock(firstConn, "/smallest", zk.WorldACL(zk.PermAll))
	check(first.Lock())

	fmt.Println("first: granted")
	network.Cut()

	began := time.Now()
	second := zk.NewLock(secondConn, "/smallest", zk.WorldACL(zk.PermAll))
	check(second.Lock())

	fmt.Printf("second: granted %.1f s after the first's network was cut\n", time.Since(began).Seconds())
	network.Heal()
	<-time.After(3 * time.Second)

	fmt.Printf("first: 3 s after the network is back: the connection is in %v, and Lock says: %v\n", firstConn.State(), first.Lock())
	check(second.Unlock())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
