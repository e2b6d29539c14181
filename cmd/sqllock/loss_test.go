//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// TestRunEndsInTimeWithoutTheServer takes the server away while a command runs
// that does not end when it is asked to, and looks that all of it is gone
// before the lease, and the trust in the lock, have ended.
func TestRunEndsInTimeWithoutTheServer(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		for what, take := range map[string]func(*proxy){"frozen": (*proxy).freeze, "unreachable": (*proxy).unreachable} {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()

				l := lose(t, name, 3*time.Second, "term,kill=1s", take)
				l.i.want(exitLost, "cannot be renewed")

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

// TestRunWaitsOverARestart takes the server away from a waiter, and
// gives it back.
func TestRunWaitsOverARestart(t *testing.T) {
	t.Parallel()

	for _, name := range serverNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			direct := migratedOn(t, name)

			holder := hold(t, direct)
			p, url := through(t, direct)
			waiter := start(t, url, "run", "--name", "a", "--", "echo", "ran")

			eventually(t, "the waiter has seen the holder", func() bool {
				return strings.Contains(waiter.stderr.String(), "waiting for a, held by")
			})
			p.unreachable()
			signalTo(t, holder, syscall.SIGTERM)
			holder.wait()
			run(t, direct, "wait", "a").want(0)

			eventually(t, "the waiter has seen that the server is gone", func() bool {
				return strings.Contains(waiter.stderr.String(), "waiting for a; the database cannot be reached")
			})
			p.back(t)
			waiter.wait()
			waiter.want(0)

			if waiter.stdout.String() != "ran\n" {
				t.Errorf("the waiter printed %q, want its command's", waiter.stdout.String())
			}
		})
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

	direct := migratedOn(tb, database)

	p, url := through(tb, direct)
	i, pids := resist(tb, url, "--lease", lease.String(), "--on-loss", onLoss)

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

	db := openDatabase(tb, tb.Context(), url)
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

// TestRunOneByOne starts sixty runs of one name at the same time. Each
// command must be alone: a folder that there is already is somebody else's.
//
// So many processes can keep a small machine from answering some of them for three
// attempts. Such a run ends with 69, having run nothing, and is started again.
func TestRunOneByOne(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	const (
		runs    = 60
		patient = 15 * time.Second // for three attempts
	)

	// Not this program: with the race detector, of which each run has two processes, it takes twice the time, and it
	// is many processes that race here.
	command := filepath.Join(t.TempDir(), "sqllock")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", command, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}

	for _, name := range databaseNames() { //nolint:paralleltest // one after the other
		t.Run(name, func(t *testing.T) {
			url := migratedOn(t, name)

			// One connection for each, or the server may have too few for all.
			if name == "postgres" {
				url = withParameter(t, url, "pool_max_conns", "1")
			}

			alone := t.TempDir() + "/alone"
			script := fmt.Sprintf("mkdir %s || exit 99; echo $SQLLOCK_TOKEN; rmdir %s", alone, alone)
			begun := time.Now()
			tokens := make([]string, runs)

			var (
				all   sync.WaitGroup
				again atomic.Int32
			)

			for n := range runs {
				all.Go(func() {
					for {
						i := prepare(t, url, "run", "--name", "a", "--", "sh", "-c", script)
						i.cmd.Path = command
						started := time.Now()

						if err := i.cmd.Run(); err != nil && i.code() == exitUnavailable && time.Since(started) >= patient {
							again.Add(1)

							continue
						}

						i.want(0)

						tokens[n] = i.stdout.String()

						return
					}
				})
			}

			all.Wait()

			if got := len(slices.Compact(slices.Sorted(slices.Values(tokens)))); got != runs {
				t.Errorf("%d runs had %d tokens, want as many", runs, got)
			}

			t.Logf("%d runs of one name took %s, %d were started again",
				runs, time.Since(begun).Round(time.Millisecond), again.Load())
		})
	}
}
