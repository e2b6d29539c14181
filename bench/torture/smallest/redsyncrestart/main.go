// Command redsyncrestart shows that two have a lock of go-redsync/redsync on three servers, by its own word, when two of the servers
// are restarted and have kept nothing. FLUSHALL stands for the restart. It empties the servers: use some of no value.
//
// Redis's page, which redsync follows, says that without persistence a client can acquire a lock again after a restart, "violating the
// safety property of exclusivity of lock", and that such servers should stay away for longer than the longest lease:
// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/#performance-crash-recovery-and-fsync.
//
//	go run ./smallest/redsyncrestart localhost:6379,localhost:6380,localhost:6381
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	driver "github.com/redis/go-redis/v9"
)

func main() {
	var (
		clients []*driver.Client
		pools   []redis.Pool
	)

	for _, address := range strings.Split(os.Args[1], ",") {
		client := driver.NewClient(&driver.Options{Addr: address})
		clients, pools = append(clients, client), append(pools, goredis.NewPool(client))
	}

	locks := redsync.New(pools...)

	first := locks.NewMutex("smallest", redsync.WithExpiry(3*time.Second))
	check(first.Lock())

	fmt.Println("first: granted")

	for _, client := range clients[:2] {
		check(client.FlushAll(context.Background()).Err())
	}

	second := locks.NewMutex("smallest", redsync.WithExpiry(3*time.Second))
	check(second.Lock())

	fmt.Printf("second: granted, valid for %.1f s\n", time.Until(second.Until()).Seconds())
	fmt.Printf("first: by Until, still valid for %.1f s\n", time.Until(first.Until()).Seconds())

	extended, err := first.Extend()
	fmt.Printf("first: told by the next Extend: %t, %v\n", extended, err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
