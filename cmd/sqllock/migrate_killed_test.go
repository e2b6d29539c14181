package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/migrate"
	"github.com/sqllock/sqllock/migrations"
)

// TestMigrateKilled kills "migrate up" and "migrate down" at each message that they send to
// the server, before it has arrived and after, and does them again.
func TestMigrateKilled(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := freshDatabase(t, name)

			up := killed(t, owner, "up", never, false)
			whole(t, owner)

			down := killed(t, owner, "down", never, false)
			unmade(t, owner)

			// Some of the messages, other ones each time: a process is slow to start.
			kills, messages := 0, max(up, down)
			step := max(1, messages/11)
			first := rand.IntN(step)

			for at := first; at < messages; at += step {
				// What arrived of the message before is what did not of this one.
				killed(t, owner, "up", at, false)
				run(t, owner, "migrate", "up").want(0)
				whole(t, owner)

				killed(t, owner, "down", at, false)
				run(t, owner, "migrate", "down").want(0)
				unmade(t, owner)

				killed(t, owner, "up", at, true)
				run(t, owner, "migrate", "down").want(0)
				unmade(t, owner)

				run(t, owner, "migrate", "up").want(0)
				killed(t, owner, "down", at, true)
				run(t, owner, "migrate", "up").want(0)
				whole(t, owner)

				run(t, owner, "migrate", "down").want(0)

				// The next one begins without the version table, or with it.
				if kills%8 == 0 {
					executeOn(t, owner, "DROP TABLE "+migrations.TableName)
				}

				kills += 4

				if t.Failed() {
					t.Fatalf("killed at message %d of %d up, %d down", at, up, down)
				}
			}

			if kills < 40 {
				t.Errorf("%d kills, want 40", kills)
			}
		})
	}
}

// whole fails the test unless all tables are there, of a version that is noted.
func whole(t *testing.T, owner string) {
	t.Helper()

	db := openDatabase(t, t.Context(), owner)
	defer db.Close()

	statuses, err := migrate.Statuses(t.Context(), db)
	if err != nil || !statuses[0].Applied {
		t.Errorf("Statuses() = %v, %v, want one that is applied", statuses, err)
	}

	look, err := migrate.Look(t.Context(), db, db.SQL)
	if err != nil || len(look.Missing) > 0 || len(look.Altered) > 0 {
		t.Errorf("Look() = %+v, %v, want all that is made", look, err)
	}
}

// unmade fails the test if anything is left but the version table.
func unmade(t *testing.T, owner string) {
	t.Helper()

	db := openDatabase(t, t.Context(), owner)
	defer db.Close()

	look, err := migrate.Look(t.Context(), db, db.SQL)
	if err != nil || len(look.There) > 0 {
		t.Errorf("Look() = %+v, %v, want that nothing is there", look, err)
	}
}

// never is no message.
const never = -1

// killed runs "sqllock migrate DIRECTION" and kills it when it sends its message of that number,
// which reaches the server if delivered says so. It returns how many messages there were.
func killed(t *testing.T, owner, direction string, at int, delivered bool) int {
	t.Helper()

	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	k := &knife{server: u.Host, at: at, delivered: delivered}
	u.Host = listener.Addr().String()

	i := prepare(t, u.String(), "migrate", direction)
	k.kill = func() { _ = i.cmd.Process.Kill() }

	i.start()

	go k.serve(listener)

	code := i.wait()

	_ = listener.Close()
	k.passing.Wait()

	if at == never && code != 0 {
		t.Fatalf("migrate %s exited with %d:\n%s", direction, code, i.stderr.String())
	}

	if strings.HasPrefix(owner, "postgres") {
		sessionsEnded(t, owner)
	}

	return k.count
}

// sessionsEnded waits for the end of PostgreSQL's sessions: a COMMIT of one that was killed goes on, and nobody waits for it.
func sessionsEnded(t *testing.T, owner string) {
	t.Helper()

	db := openDatabase(t, t.Context(), owner)
	defer db.Close()

	eventually(t, "the sessions of the process that was killed have ended", func() bool {
		var others int

		err := db.SQL.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&others)
		if err != nil {
			t.Fatal(err)
		}

		return others == 0
	})
}

// knife is a proxy that kills its client.
type knife struct {
	server    string
	at        int
	delivered bool
	kill      func()

	passing sync.WaitGroup
	mu      sync.Mutex
	count   int
}

func (k *knife) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}

		server, err := net.Dial("tcp", k.server)
		if err != nil {
			_ = client.Close()

			continue
		}

		k.passing.Add(1)

		go func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		}()

		go func() {
			defer k.passing.Done()
			defer server.Close()

			_ = k.pass(client, server)
		}()
	}
}

// pass takes what arrives at once for a message: the client waits for each answer.
func (k *knife) pass(client, server net.Conn) error {
	buffer := make([]byte, 64<<10)

	for {
		n, err := client.Read(buffer)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}

		k.mu.Lock()
		now := k.count == k.at
		k.count++
		k.mu.Unlock()

		if now {
			k.kill()
		}

		if now && !k.delivered {
			return os.ErrProcessDone
		}

		if _, err := server.Write(buffer[:n]); err != nil {
			return err
		}
	}
}
