package bench_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

const microseconds = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// Acquisitions that cost less than that of cas, and do not keep what it promises. The first waits for row locks of others.
// The second writes one row only, where a guard would be in the way of renewals. The third is the second
// without its SKIP LOCKED.
var (
	waiting = databases.Statement{
		SQL: `UPDATE sqllock_locks l STRAIGHT_JOIN sqllock_leases e ON e.name = l.name
   SET l.token = LAST_INSERT_ID(GREATEST(l.token + ?, ` + microseconds + `)), l.owner = UNHEX(?), l.lock_delay_us = ?,
       l.acquired_at = ` + microseconds + `, l.host = UNHEX(?), l.pid = ?, l.label = UNHEX(?), l.metadata = UNHEX(?), l.strategy = UNHEX(?),
       e.ended = '', e.owner = UNHEX(?), e.wait = UNHEX(?), e.expires_at = ` + microseconds + ` + ?
 WHERE l.name = UNHEX(?) AND l.token <> 0 AND (e.owner = UNHEX(?) OR e.waiting = 0 AND e.expires_at + l.lock_delay_us <= ` + microseconds + `)`,
		Args: []string{
			"tokens", "owner", "delay", "host", "pid", "label", "metadata", "strategy", "owner", "wait", "lease", "name", "owner",
		},
	}
	oneRow = databases.Statement{
		SQL: `UPDATE (
    SELECT e.name FROM sqllock_locks l JOIN sqllock_leases e ON e.name = l.name
     WHERE l.name = UNHEX(?) AND l.token <> 0
       AND (e.owner = UNHEX(?) OR e.waiting = 0 AND e.expires_at + l.lock_delay_us <= ` + microseconds + `)
     LIMIT 1 FOR UPDATE SKIP LOCKED
) free
STRAIGHT_JOIN sqllock_leases e ON e.name = free.name
   SET e.tick = LAST_INSERT_ID(GREATEST(e.tick + ?, ` + microseconds + `)), e.owner = UNHEX(?), e.wait = UNHEX(?), e.ended = '',
       e.expires_at = ` + microseconds + ` + ?`,
		Args: []string{"name", "owner", "tokens", "owner", "wait", "lease"},
	}
	plain = databases.Statement{
		SQL: `UPDATE sqllock_leases e
   SET e.tick = LAST_INSERT_ID(GREATEST(e.tick + ?, ` + microseconds + `)), e.owner = UNHEX(?), e.wait = UNHEX(?), e.ended = '',
       e.expires_at = ` + microseconds + ` + ?
 WHERE e.name = UNHEX(?) AND (e.owner = UNHEX(?) OR e.waiting = 0 AND e.expires_at <= ` + microseconds + `)`,
		Args: []string{"tokens", "owner", "wait", "lease", "name", "owner"},
	}
)

// BenchmarkVariants is where the time of a pair of cas goes on MySQL and MariaDB: what its two statements cost, and other ways
// to send them, and others in their place, each as a ratio to two committed updates. All take turns on two connections.
//
//   - cas: as the strategy sends them
//   - kept: prepared once for the connection
//   - prepared: prepared anew each time, which is what the driver does with a statement that has values
//   - refused: the acquisition of a name that is held, which writes and commits nothing, and no release
//   - waiting, one-row, plain: see above
func BenchmarkVariants(b *testing.B) {
	for _, server := range []string{"mysql", "mariadb"} {
		b.Run(server, func(b *testing.B) {
			config := mysqlDatabase(b, server)
			binary := mysqlStd(b, config)

			config.InterpolateParams = true
			text := mysqlStd(b, config)

			compareVariants(b, text, binary)
		})
	}
}

func compareVariants(b *testing.B, text, binary *sql.DB) {
	b.Helper()

	conn, err := binary.Conn(b.Context())
	if err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { _ = conn.Close() })

	name, strategy := b.Name(), cas.New(mysql.New(text))
	noted := &notes{DB: mysql.New(text)}
	pair := func(strategy *cas.Strategy) {
		grant, err := single.TryAcquire(b.Context(), strategy, strategies.Request{Name: name, Owner: rand.Text(), Lease: time.Minute})
		if err == nil {
			err = grant.Release(b.Context())
		}

		if err != nil {
			b.Fatal(err)
		}
	}

	pair(cas.New(noted)) // makes the row
	noted.sent = nil
	pair(cas.New(noted))

	if len(noted.sent) != 2 {
		b.Fatalf("a pair sent %d statements, want 2", len(noted.sent))
	}

	acquire, release := noted.sent[0], noted.sent[1]
	values := noted.values
	statements := floors[databases.MySQL]
	exec(b, text, "INSERT INTO sqllock_bare (name) VALUES ('"+name+"')")
	exec(b, text, "INSERT INTO sqllock_locks (name, token) VALUES ('held', 1)")
	exec(b, text, "INSERT INTO sqllock_leases (name, owner, expires_at) VALUES ('held', 'somebody', 1 << 62)")

	in := func(run func(query string, args ...any) (sql.Result, error), of ...databases.Statement) func() {
		return func() {
			values["owner"] = rand.Text()

			for _, statement := range of {
				if _, err := run(statement.SQL, asDigits(b, statement, values)...); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	written := func(query string, args ...any) (sql.Result, error) {
		return text.ExecContext(b.Context(), query, args...)
	}
	prepared := func(query string, args ...any) (sql.Result, error) {
		return conn.ExecContext(b.Context(), query, args...)
	}
	ready := make(map[string]*sql.Stmt)
	kept := func(query string, args ...any) (sql.Result, error) {
		if ready[query] == nil {
			statement, err := conn.PrepareContext(b.Context(), query)
			if err != nil {
				b.Fatal(err)
			}

			b.Cleanup(func() { _ = statement.Close() })

			ready[query] = statement
		}

		return ready[query].ExecContext(b.Context(), args...)
	}
	floor := func() {
		if _, err := written(statements.take, "0123456789abcdef0123456789abcdef", name); err != nil {
			b.Fatal(err)
		}

		if _, err := written(statements.give, name); err != nil {
			b.Fatal(err)
		}
	}
	refused := func() {
		values["name"] = "held"
		in(written, acquire)()
		values["name"] = name
	}

	inTurns(b, floor, []variant{
		{"cas", func() { pair(strategy) }},
		{"kept", in(kept, acquire, release)},
		{"prepared", in(prepared, acquire, release)},
		{"refused", refused},
		{"waiting", in(written, waiting, release)},
		{"one-row", in(written, oneRow, release)},
		{"plain", in(written, plain, release)},
	})
}

type variant struct {
	name string
	run  func()
}

// inTurns reports the median of each variant as a ratio to that of the floor.
func inTurns(b *testing.B, floor func(), variants []variant) {
	b.Helper()

	all := append([]variant{{"floor", floor}}, variants...)
	times := make([][]time.Duration, len(all))

	for _, v := range all {
		for range warmUp {
			v.run()
		}
	}

	for b.Loop() {
		for i, v := range all {
			for range block {
				started := time.Now()
				v.run()
				times[i] = append(times[i], time.Since(started))
			}
		}
	}

	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(median(times[0]).Microseconds()), "µs/floor")

	for i, v := range all[1:] {
		b.ReportMetric(float64(median(times[i+1]))/float64(median(times[0])), v.name+"/floor")
	}
}

// asDigits are the values of a statement as it binds them: text in hexadecimal digits.
func asDigits(b *testing.B, statement databases.Statement, values databases.Values) []any {
	b.Helper()

	args, err := statement.Bind(values)
	if err != nil {
		b.Fatal(err)
	}

	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = hex.EncodeToString([]byte(text))
		}
	}

	return args
}

// notes is a database that notes what it is sent.
type notes struct {
	databases.DB

	sent   []databases.Statement
	values databases.Values // of the first acquisition, which has them all
}

func (n *notes) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := n.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return &notedConn{conn, n}, nil
}

type notedConn struct {
	databases.Conn

	by *notes
}

func (c *notedConn) Run(
	ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error,
) (databases.Result, error) {
	if each == nil {
		c.by.sent = append(c.by.sent, s)
		if slices.Contains(s.Args, "lease") {
			c.by.values = v
		}
	}

	return c.Conn.Run(ctx, s, v, each)
}
