// Command clientclock shows that a row with an expiry by the client's clock, which is renewed in time, is taken by a client whose
// clock is a minute ahead.
//
// There is no library here: it is what one writes by hand. PostgreSQL has a clock that all clients share, clock_timestamp():
// https://www.postgresql.org/docs/17/functions-datetime.html#FUNCTIONS-DATETIME-CURRENT.
//
//	go run ./smallest/clientclock postgres://user:password@host/database
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	lease   = 3 * time.Second
	acquire = `INSERT INTO smallest_locks (name, owner, expires) VALUES ('a', $1, $2) ON CONFLICT (name)
		DO UPDATE SET owner = excluded.owner, expires = excluded.expires WHERE smallest_locks.expires < $3`
	renew = `UPDATE smallest_locks SET expires = $2 WHERE name = 'a' AND owner = $1`
)

var ahead = time.Minute // of the second's clock

func main() {
	first := time.Now
	second := func() time.Time { return time.Now().Add(ahead) }

	execute(`CREATE TABLE IF NOT EXISTS smallest_locks (name text PRIMARY KEY, owner text, expires timestamptz)`)

	fmt.Println("first: granted:", execute(acquire, "first", first().Add(lease), first()))
	<-time.After(time.Second)
	fmt.Println("first: renewed for 3 s:", execute(renew, "first", first().Add(lease)))
	fmt.Println("second: granted:", execute(acquire, "second", second().Add(lease), second()))
	<-time.After(time.Second)
	fmt.Println("first: told by the next renewal, 1 s later; renewed:", execute(renew, "first", first().Add(lease)))

	execute(`DROP TABLE smallest_locks`)
}

// execute says whether the statement changed a row.
func execute(statement string, arguments ...any) bool {
	ctx := context.Background()

	conn, err := pgx.Connect(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	tag, err := conn.Exec(ctx, statement, arguments...)
	if err != nil {
		log.Panic(err)
	}

	return tag.RowsAffected() == 1
}
