// Command redisfailover shows that two have a lock of bsm/redislock, and one of go-redsync/redsync on one server, when a replica
// without the last write takes the place of the primary. A holder that refreshes it is told by its next refresh, and not before.
//
// Redis's page, which both follow, says so: "The master crashes before the write to the key is transmitted to the replica. [...]
// SAFETY VIOLATION!": https://redis.io/docs/latest/develop/use/patterns/distributed-locks/.
//
//	go run ./smallest/redisfailover localhost:6379 localhost:6380    # the second becomes a replica of the first and loses its data
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

const lease = 3 * time.Second

func main() {
	ctx := context.Background()
	primary, replica := redis.NewClient(&redis.Options{Addr: os.Args[1]}), redis.NewClient(&redis.Options{Addr: os.Args[2]})

	host, port, err := net.SplitHostPort(os.Args[1])
	check(err)
	check(replica.ReplicaOf(ctx, host, port).Err())

	if n, err := primary.Wait(ctx, 1, 5*time.Second).Result(); n != 1 {
		log.Fatal("the replica does not follow: ", err)
	}

	check(replica.ReplicaOf(ctx, "NO", "ONE").Err()) // it gets no more: replication is asynchronous

	// The first's client goes to where the primary is, as one with Sentinel does.
	var failedOver atomic.Bool

	firsts := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if failedOver.Load() {
			return new(net.Dialer).DialContext(ctx, network, os.Args[2])
		}

		return new(net.Dialer).DialContext(ctx, network, os.Args[1])
	}})

	lock, err := redislock.New(firsts).Obtain(ctx, "smallest", lease, nil)
	check(err)

	mutex := redsync.New(goredis.NewPool(firsts)).NewMutex("smallest-redsync", redsync.WithExpiry(lease))
	check(mutex.Lock())
	check(lock.Refresh(ctx, lease, nil))

	refreshed := time.Now()

	fmt.Println("first: granted and refreshed")

	failedOver.Store(true) // and the primary's connections end
	check(primary.ClientKillByFilter(ctx, "TYPE", "normal").Err())

	_, err = redislock.New(replica).Obtain(ctx, "smallest", lease, nil)
	check(err)
	check(redsync.New(goredis.NewPool(replica)).NewMutex("smallest-redsync", redsync.WithExpiry(lease)).Lock())

	fmt.Printf("second: granted %.1f s later, both\n", time.Since(refreshed).Seconds())
	fmt.Printf("first: by redsync's Until, still valid for %.1f s\n", time.Until(mutex.Until()).Seconds())
	<-time.After(time.Until(refreshed.Add(lease / 3)))

	err = lock.Refresh(ctx, lease, nil)
	fmt.Printf("first: told by the next Refresh, %.1f s after the last: %t\n",
		time.Since(refreshed).Seconds(), errors.Is(err, redislock.ErrNotObtained))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
