//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/testdatabases"
	"github.com/sqllock/sqllock/databases"
)

// TestRunEndsInTimeWithoutTheServer takes the server away while a command runs
// that does not end when it is asked to, and looks that all of it is gone
// before the lease, and the trust in the lock, have ended.
func TestRunEndsInTimeWithoutTheServer(t *testing.T) {
	t.Parallel()

	for _, name := range testdatabases.Servers() {
		for what, take := range map[string]func(*proxy){"frozen": (*proxy).freeze, "unreachable": (*proxy).unreachable} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()

				l := lose(t, name, 3*time.Second, "term,kill=1s", take)
				l.i.want(exitLost, "can not be renewed")

				if !strings.Contains(l.i.stdout.String(), "term\n") {
					t.Errorf("the command printed %q, want it to have been asked to end", l.i.stdout.String())
				}

				if l.beforeTrust() <= 0 {
					t.Errorf("the group was gone %s after the trust window, want before", -l.beforeTrust())
				}
			})
		}
	}
}

// loss is a run that lost its server.
type loss struct {
	i *invocation
	// lease it had; taken is when the server was, and gone when the last process
	// of the group was.
	lease       time.Duration
	taken, gone time.Time
	// end is when the lease ended that was renewed last.
	end time.Time
}

// margin is what the trust window ends before the lease: one hundredth and ten
// milliseconds, and what the renewal took to reach the server, which is not
// known here and taken for nothing. So beforeTrust is too small if it is wrong.
func (l loss) margin() time.Duration { return l.lease/100 + 10*time.Millisecond }

// beforeTrust is how long before the end of the trust window the group was gone.
func (l loss) beforeTrust() time.Duration { return l.end.Add(-l.margin()).Sub(l.gone) }

// lose starts a command under a lock, takes the server away, and waits for all
// of the command to be gone.
func lose(tb testing.TB, database string, lease time.Duration, onLoss string, take func(*proxy)) loss {
	tb.Helper()

	direct := testdatabases.Fresh(tb, database)
	run(tb, direct, "migrate", "up").want(0)

	p, url := through(tb, direct)
	i := start(tb, url, "run", "--name", "a", "--lease", lease.String(), "--on-loss", onLoss, "--", "sh", "-c", stubborn)
	pids := i.pids(2)

	taken := time.Now()
	take(p)

	// A renewal may have been under way.
	l := loss{i: i, lease: lease, taken: taken}

	for _, pid := range pids {
		for alive(pid) {
			if time.Since(taken) > patience {
				tb.Fatalf("after %s process %d lives still", patience, pid)
			}

			<-time.After(time.Millisecond)
		}
	}

	l.gone = time.Now()
	l.end = leaseEndOn(tb, direct)

	i.wait()

	return l
}

// leaseEndOn asks the server when the lease ends, which nobody renews any more.
// It runs on this machine, so its clock is this one's.
func leaseEndOn(tb testing.TB, url string) time.Time {
	tb.Helper()

	db := testdatabases.Open(tb, tb.Context(), url)
	defer db.Close()

	query := `SELECT max(expires_at) FROM sqllock_leases`
	if db.Target.Dialect == databases.Postgres {
		query = `SELECT (extract(epoch FROM max(expires_at)) * 1000000)::bigint FROM sqllock_locks`
	}

	var micros int64
	if err := db.SQL.QueryRowContext(tb.Context(), query).Scan(&micros); err != nil {
		tb.Fatal(err)
	}

	return time.UnixMicro(micros)
}

// TestRunOneByOne starts two hundred runs of one name at the same time. Each
// command must be alone: a folder that there is already is somebody else's.
func TestRunOneByOne(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	const runs = 200

	for _, name := range testdatabases.Names() { //nolint:paralleltest // one after the other
		t.Run(name, func(t *testing.T) {
			url := testdatabases.Fresh(t, name)
			run(t, url, "migrate", "up").want(0)

			// One connection for each, or the server may have too few for all.
			if name == "postgres" {
				url = withParameter(t, url, "pool_max_conns", "1")
			}

			alone := t.TempDir() + "/alone"
			script := fmt.Sprintf("mkdir %s || exit 99; echo $SQLLOCK_TOKEN; rmdir %s", alone, alone)
			begun := time.Now()

			var all []*invocation
			for range runs {
				i := prepare(t, url, "run", "--name", "a", "--", "sh", "-c", script)
				i.start()
				all = append(all, i)
			}

			tokens := map[string]bool{}

			for _, i := range all {
				i.wait()
				i.want(0)

				tokens[i.stdout.String()] = true
			}

			if len(tokens) != runs {
				t.Errorf("%d runs had %d tokens, want as many", runs, len(tokens))
			}

			t.Logf("%d runs of one name took %s", runs, time.Since(begun).Round(time.Millisecond))
		})
	}
}
