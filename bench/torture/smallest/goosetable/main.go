// Command goosetable shows that a table lock of pressly/goose goes to another one while its holder's network is cut, and that
// nothing tells the holder, not even when the network is back.
//
// Its documentation says that the "lock stays alive automatically until released", and that others can take it after the lease "if
// the process dies": https://pkg.go.dev/github.com/pressly/goose/v3/lock#NewPostgresTableLocker. It is made for migrations.
//
//	go run ./smallest/goosetable postgres://user:password@host/database
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/lock"

	"github.com/sqllock/sqllock/bench/torture/smallest/silent"
)

func main() {
	ctx := context.Background()

	config, err := pgx.ParseConfig(os.Args[1])
	check(err)

	secondDB := stdlib.OpenDB(*config)

	var network silent.Network

	config.DialFunc = network.Dial
	firstDB := stdlib.OpenDB(*config)

	first := acquire(ctx, firstDB)

	fmt.Println("first: granted")
	network.Cut()

	began := time.Now()
	second := acquire(ctx, secondDB)

	fmt.Printf("second: granted %.1f s after the first's network was cut\n", time.Since(began).Seconds())
	network.Heal()
	<-time.After(3 * time.Second) // four heartbeats

	fmt.Printf("first: 3 s after the network is back: the error of my context is %v, and a Locker tells nothing else\n", ctx.Err())
	fmt.Println("first: told by Unlock alone, after the work:", first.Unlock(ctx, firstDB))
	check(second.Unlock(ctx, secondDB))
}

func acquire(ctx context.Context, db *sql.DB) lock.Locker {
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLeaseDuration(2*time.Second), lock.WithTableHeartbeatInterval(700*time.Millisecond),
		lock.WithTableLockTimeout(500*time.Millisecond, 20), lock.WithTableUnlockTimeout(500*time.Millisecond, 1))
	check(err)
	check(locker.Lock(ctx, db))

	return locker
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
