package conformance_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
)

// namedLocks is the strategy advisory in a schema of its own.
type namedLocks struct {
	*testing.T

	strategy *advisory.Strategy
	faulty   *sqllocktest.Faulty
	beside   *sql.DB
	schema   string
}

// onNamedLocks runs a test on MySQL and on MariaDB, where affected rows are those that changed, and those that were found.
func onNamedLocks(t *testing.T, test func(namedLocks)) {
	t.Helper()

	for _, server := range []string{"mysql", "mariadb"} {
		for mode, found := range map[string]bool{"changed": false, "found": true} {
			t.Run(server+"/"+mode, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, mysqlConfig(t, server))
				counts := config.Clone()
				counts.ClientFoundRows = found
				faulty := sqllocktest.NewFaulty(mysql.New(mysqlPool(t, counts)))

				test(namedLocks{t, advisory.New(faulty), faulty, mysqlPool(t, config), config.DBName})
			})
		}
	}
}

func ask(name string) strategies.Request {
	return strategies.Request{Name: name, Owner: "owner of " + name, Lease: time.Minute}
}

// acquire acquires a name, alone.
func (n namedLocks) acquire(name string) single.Grant {
	n.Helper()

	grant, err := single.TryAcquire(n.Context(), n.strategy, ask(name))
	if err != nil {
		n.Fatalf("TryAcquire(%q) = %v, want the lock", name, err)
	}

	return grant
}

// release releases grants, alone.
func (n namedLocks) release(grants ...single.Grant) {
	n.Helper()

	for _, grant := range grants {
		if err := grant.Release(n.Context()); err != nil {
			n.Errorf("Release() = %v, want nil", err)
		}
	}
}

// wantLocked fails unless of some names a session has exactly these.
func (n namedLocks) wantLocked(when string, names []string, locked ...string) {
	n.Helper()

	var got []string

	for _, name := range names {
		sum := sha256.Sum256([]byte("sqllock\x00" + n.schema + "\x00" + name))

		var used bool

		err := n.beside.QueryRowContext(n.Context(), "SELECT IS_USED_LOCK(?) IS NOT NULL", "sqllock:"+hex.EncodeToString(sum[:20])).Scan(&used)
		if err != nil {
			n.Fatal(err)
		}

		if used {
			got = append(got, name)
		}
	}

	if strings.Join(got, " ") != strings.Join(locked, " ") {
		n.Errorf("%s sessions have the named locks of %q, want %q", when, got, locked)
	}
}

// TestReadersOfNamedLocks: there are none.
func TestReadersOfNamedLocks(t *testing.T) {
	t.Parallel()

	onNamedLocks(t, func(n namedLocks) {
		request := ask("read")
		request.Mode = strategies.Shared

		_, err := single.TryAcquire(n.Context(), n.strategy, request)
		if want := "for readers on MySQL and MariaDB, whose GET_LOCK knows none"; !errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			n.Errorf("TryAcquire() of a reader = %v, want ErrUnsupported %s", err, want)
		}
	})
}

// TestNamedLocksOfABatch: of names that are asked for together each has its own answer, and none has a named lock and no grant.
func TestNamedLocksOfABatch(t *testing.T) {
	t.Parallel()

	onNamedLocks(t, func(n namedLocks) {
		names := []string{"free", "awaited", "leased", "ahead", "own", "rows", "new", "freer"}

		for _, name := range names[:6] {
			n.release(n.acquire(name))
		}

		n.release(n.acquire("freer"))

		exec(n.T, n.beside, "UPDATE sqllock_leases SET waiting = 1 WHERE name = 'awaited'")
		exec(n.T, n.beside, "UPDATE sqllock_leases SET owner = 'another', expires_at = 9e15 WHERE name = 'leased'")
		exec(n.T, n.beside, "UPDATE sqllock_locks SET strategy = 'cas' WHERE name IN ('leased', 'own')")
		exec(n.T, n.beside, "UPDATE sqllock_locks SET token = 9000000000000000 WHERE name = 'ahead'")
		exec(n.T, n.beside, "UPDATE sqllock_leases SET owner = 'owner of own', expires_at = 9e15 WHERE name = 'own'")

		tx, err := n.beside.BeginTx(n.Context(), nil)
		if err != nil {
			n.Fatal(err)
		}

		if _, err := tx.ExecContext(n.Context(), "SELECT * FROM sqllock_leases WHERE name = 'rows' FOR UPDATE"); err != nil {
			n.Fatal(err)
		}

		requests := make([]strategies.Request, len(names))
		for i, name := range names {
			requests[i] = ask(name)
		}

		made, errs := n.strategy.Acquire(n.Context(), requests)

		for i, name := range names {
			switch held := new(strategies.HeldError); name {
			case "awaited", "leased", "rows":
				if !made[i].None() || !errors.As(errs[i], &held) || (held.Line != 0) != (name == "awaited") || (held.Owner == "another") != (name == "leased") {
					n.Errorf("the answer for %q = %v, %v, want that it is %s", name, made[i], errs[i], name)
				}
			default:
				if errs[i] != nil {
					n.Errorf("the answer for %q = %v, want the grant", name, errs[i])

					continue
				}

				var token int64

				err := n.beside.QueryRowContext(n.Context(), "SELECT token FROM sqllock_locks WHERE name = ?", name).Scan(&token)
				if err != nil || token != made[i].Token || (token == 9000000000000001) != (name == "ahead") {
					n.Errorf("the grant of %q has token %d, and its row %d, %v", name, made[i].Token, token, err)
				}
			}
		}

		n.wantLocked("after a batch", names, "free", "ahead", "own", "new", "freer")

		if err := tx.Rollback(); err != nil {
			n.Fatal(err)
		}

		// One is not its owner's any more.
		exec(n.T, n.beside, "UPDATE sqllock_leases SET owner = '', ended = 'forced: so' WHERE name = 'own'")

		held := []strategies.Grant{made[0], made[3], made[4], made[6], made[7]}
		_, errs = n.strategy.Release(n.Context(), held)

		for i, err := range errs {
			if lost := i == 2; (err != nil) != lost || lost && !errors.Is(err, strategies.ErrNotBatched) {
				n.Errorf("Release() of grant %d = %v, want ErrNotBatched of the one that is lost", i, err)
			}
		}

		n.wantLocked("after a release of all", names, "own")

		if _, err := strategies.ReleaseOne(n.Context(), n.strategy, made[4]); !errors.Is(err, sqllock.ErrLost) {
			n.Errorf("Release() of a grant that was taken away = %v, want ErrLost", err)
		}

		n.wantLocked("after its release", names)
	})
}

// TestNamedLockOnce: a session has a named lock as often as it was given it. One that it has twice is not left behind.
func TestNamedLockOnce(t *testing.T) {
	t.Parallel()

	onNamedLocks(t, func(n namedLocks) {
		n.faulty.Twice("advisory.acquire")

		grant := n.acquire("twice")

		// Until the server has ended the session it says so.
		eventually(n.T, "Release() of a named lock that is left returns ErrLost", func() bool {
			return errors.Is(grant.Release(n.Context()), sqllock.ErrLost)
		})

		n.wantLocked("after the release", []string{"twice"})
	})
}

// TestRefusedWithTheNamedLock: as TestRefusedWithTheKey.
func TestRefusedWithTheNamedLock(t *testing.T) {
	t.Parallel()

	onNamedLocks(t, func(n namedLocks) {
		names := []string{"beside", "refused", "a", "b", "second", "third"}
		refused := &driver.MySQLError{Number: 1205, Message: "a lock wait timeout"}

		for _, name := range names[1:] {
			n.release(n.acquire(name))
		}

		beside := n.acquire("beside")

		n.faulty.Fail("advisory.acquire", 1, sqllocktest.After, refused)

		if _, err := single.TryAcquire(n.Context(), n.strategy, ask("refused")); !errors.Is(err, sqllock.ErrNotAcquired) {
			n.Errorf("TryAcquire() that was refused = %v, want ErrNotAcquired", err)
		}

		n.wantLocked("after an acquisition that was refused", names, "beside")

		n.faulty.Fail("advisory.acquire-all", 1, sqllocktest.After, refused)

		_, errs := n.strategy.Acquire(n.Context(), []strategies.Request{ask("a"), ask("b")})
		if !errors.Is(errs[0], strategies.ErrNotBatched) || !errors.Is(errs[1], strategies.ErrNotBatched) {
			n.Errorf("Acquire() that was refused = %v, want ErrNotBatched", errs)
		}

		n.wantLocked("after acquisitions that were refused", names, "beside")

		second := n.acquire("second")

		n.faulty.Fail("advisory.release", 1, sqllocktest.After, refused)
		n.release(second)

		third := n.acquire("third")

		n.faulty.Fail("advisory.release-all", 1, sqllocktest.After, refused)

		if err := errors.Join(beside.Check(n.Context()), releaseTogether(n.Context(), n.strategy, beside, third)); err != nil {
			n.Errorf("Check() and Release() of the other locks = %v, want nil", err)
		}

		n.wantLocked("after the releases", names)
	})
}

// TestStatementsOfNamedLocks: one statement acquires, and one releases, also several.
func TestStatementsOfNamedLocks(t *testing.T) {
	t.Parallel()

	onNamedLocks(t, func(n namedLocks) {
		requests := []strategies.Request{ask("a"), ask("b"), ask("c")}

		for _, r := range requests {
			n.release(n.acquire(r.Name))
		}

		beside := n.acquire("beside") // or the last release would give the session back
		before := len(n.faulty.Statements())

		n.release(n.acquire("a"))

		made, errs := n.strategy.Acquire(n.Context(), requests)
		_, failed := n.strategy.Release(n.Context(), made)

		if err := errors.Join(append(errs, failed...)...); err != nil {
			n.Errorf("Acquire() and Release() = %v, want nil", err)
		}

		got, want := strings.Join(n.faulty.Statements()[before:], " "), "advisory.acquire advisory.release advisory.acquire-all advisory.release-all"
		if got != want {
			n.Errorf("sent %s, want %s", got, want)
		}

		n.release(beside)
	})
}
