// Command advisory shows that the holder of a session-level advisory lock of PostgreSQL is not told when the server ends its session,
// and another one has the lock: it learns of it with its next statement on that connection, if it sends one.
//
// The documentation says: "Once acquired at session level, an advisory lock is held until explicitly released or the session ends":
// https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS.
//
//	go run ./smallest/advisory postgres://user:password@host/database
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()

	first, err := pgx.Connect(ctx, os.Args[1])
	check(err)

	second, err := pgx.Connect(ctx, os.Args[1])
	check(err)

	_, err = first.Exec(ctx, `SELECT pg_advisory_lock(4711)`)
	check(err)

	fmt.Println("first: granted")

	// As an administrator does, a timeout, or a restart.
	_, err = second.Exec(ctx, `SELECT pg_terminate_backend($1)`, first.PgConn().PID())
	check(err)

	began := time.Now()
	_, err = second.Exec(ctx, `SELECT pg_advisory_lock(4711)`)
	check(err)

	fmt.Printf("second: granted %.1f s after the server ended the first's session\n", time.Since(began).Seconds())
	<-time.After(2 * time.Second)

	fmt.Printf("first: 2 s later: my connection is closed: %t\n", first.IsClosed())
	fmt.Println("first: told by the next statement:", first.Ping(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
