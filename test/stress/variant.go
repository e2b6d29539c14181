//go:build unix

package stress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/internal/wallclock"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/edited"
)

// Variant is a lock that is known to be broken: the strategy of a pair with one thing changed. A run of it
// under its faults must break a promise, and the checks must see that.
type Variant struct {
	Name string
	Pair Pair
	// By are the checks of which one must see it. What else is found may be the harness breaking.
	By []string
	// Faults bring the error to light; none, if ordinary use does.
	Faults []Fault
	// Profile replaces the usual one, if it is set.
	Profile profile

	// together: it is about batches, or about locks that are handed on. The others are about statements for one
	// lock.
	together bool
	// tune makes the error likely, if it needs more than the faults.
	tune func(*Settings)
	// half: only every second worker has it, as a new version that runs beside the last one.
	half bool
	// edit changes statements, by name, and every all of them.
	edit  map[string]func(databases.Statement) databases.Statement
	every func(databases.Statement) databases.Statement
	// bind changes the values of statements.
	bind func(databases.Values)
	// replace is a strategy in place of the pair's, or around it.
	replace func(w *worker, inner lined) (strategies.Strategy, error)
	// trust is a lock that believes more than it should, or does not say what it is.
	trust func(lock *sqllock.Lock, lease time.Duration) handle
}

// idle are holds that last, and only ask the lock itself meanwhile.
var idle = profile{LongHold: 0.1, Idle: 1, Cancel: 0.05}

// browsing is the use of one name by readers and writers who come and go. Nobody waits: a line would keep newcomers from
// what they are to meet.
var browsing = profile{Reading: 0.8, Brief: true, Tries: true}

// oneBook has them at one name, in many processes, whose readers share less.
func oneBook(s *Settings) { s.Names, s.Processes, s.Goroutines = []string{book}, 6, 2 }

// slow lets time pass between the beginning of an acquisition and its row lock.
func slow(s databases.Statement) databases.Statement {
	return both(
		instead(`WITH free AS (
    SELECT l.name FROM sqllock_locks l`, `WITH slow AS MATERIALIZED (SELECT pg_sleep(random() * 0.03)), free AS (
    SELECT l.name FROM slow, sqllock_locks l`),
		instead(`FOR UPDATE SKIP LOCKED`, `FOR UPDATE OF l SKIP LOCKED`),
	)(s)
}

// queueing are short holds, and long waits.
var queueing = profile{Patient: 0.7, Cancel: 0.05}

// fewNames lets many want the same name.
func fewNames(s *Settings) { s.Names = s.Names[:2] }

// without takes a part out of a statement. One that is not there would make a variant that is not broken.
func without(part string) func(databases.Statement) databases.Statement { return instead(part, "") }

// instead replaces a part of a statement where it stands first.
func instead(part, by string) func(databases.Statement) databases.Statement {
	return func(s databases.Statement) databases.Statement {
		if !strings.Contains(s.SQL, part) {
			panic(fmt.Sprintf("statement %s has no %q any more: %s", s.Name, part, s.SQL))
		}

		s.SQL = strings.Replace(s.SQL, part, by, 1)

		return s
	}
}

// both applies two changes.
func both(first, second func(databases.Statement) databases.Statement) func(databases.Statement) databases.Statement {
	return func(s databases.Statement) databases.Statement { return second(first(s)) }
}

// binding replaces a part by one that binds one more value, whose number is for %d.
func binding(part, by, arg string) func(databases.Statement) databases.Statement {
	return func(s databases.Statement) databases.Statement {
		s.Args = append(s.Args[:len(s.Args):len(s.Args)], arg)

		return instead(part, fmt.Sprintf(by, len(s.Args)))(s)
	}
}

type edits = map[string]func(databases.Statement) databases.Statement

const (
	postgresNow     = `pg_catalog.clock_timestamp()`
	postgresExpired = `expires_at + lock_delay_us::float * interval '1 microsecond' <= ` + postgresNow
	postgresMicros  = `(pg_catalog.date_part('epoch', ` + postgresNow + `) * 1000000::float)::bigint`
	sqliteNow       = `CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000`
)

// Variants returns the known-bad locks.
func Variants() []*Variant {
	return []*Variant{
		{
			Name: "release without its owner", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "cas"}, Faults: []Fault{FaultPause},
			edit: edits{
				"grant.release":    instead(`owner = $2`, `$2 <> ''`),
				"grant.release-tx": instead(`owner = $2`, `$2 <> ''`),
			},
		},
		{
			Name: "expiry by the client's clock", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "cas"}, Faults: []Fault{FaultClock},
			edit: edits{"cas.acquire": binding(`<= pg_catalog.clock_timestamp() OR`, `<= to_timestamp($%d) OR`, "client_clock")},
			bind: func(v databases.Values) { v["client_clock"] = wallclock.Of(time.Now()).Seconds() },
		},
		{
			Name: "check, then set", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "cas"}, tune: fewNames,
			edit: edits{"cas.acquire": without(`FOR UPDATE SKIP LOCKED`)},
		},
		{
			Name: "release without its owner", By: []string{checkWindows, checkLinear},
			Pair: Pair{"mysql", "cas"}, Faults: []Fault{FaultPause},
			edit: edits{
				"grant.release":    instead(`owner = UNHEX(?)`, `UNHEX(?) <> ''`),
				"grant.release-tx": instead(`owner = UNHEX(?)`, `UNHEX(?) <> ''`),
			},
		},
		{
			Name: "token drawn before the check", By: []string{checkTokens, checkWindows, checkGuard, checkLinear},
			Pair: Pair{"postgres", "insert"},
			edit: edits{"insert.acquire": both(
				both(
					instead(`WITH free AS (`, `WITH drawn AS MATERIALIZED (
    SELECT token, pg_sleep(random() * 0.03) FROM (SELECT `+postgresMicros+` AS token OFFSET 0) early
), free AS (`),
					instead(`FROM sqllock_locks l
`, `FROM drawn, sqllock_locks l
`),
				),
				both(
					instead(`FOR UPDATE SKIP LOCKED`, `FOR UPDATE OF l SKIP LOCKED`),
					both(
						instead(`ELSE greatest(l.token + `, `ELSE (SELECT token FROM drawn) + greatest(0 * `),
						instead(`::bigint, `+postgresMicros+`) END`, `::bigint) END`),
					),
				),
			)},
		},
		{
			Name: "token in the held transaction", By: []string{checkTokens},
			Pair: Pair{"postgres", "forupdate"}, Faults: []Fault{FaultKill, FaultSession},
			Profile: profile{LongHold: 0.1, Idle: 0.5}, replace: newHeldToken,
		},
		{
			Name: "token of a row that is deleted", By: []string{checkTokens},
			Pair: Pair{"sqlite", "cas"},
			edit: edits{
				"grant.release":    instead(`UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0`, `DELETE FROM sqllock_locks`),
				"grant.release-tx": instead(`UPDATE sqllock_locks SET owner = '', expires_at = 0, lock_delay_us = 0`, `DELETE FROM sqllock_locks`),
				"cas.acquire":      instead(`VALUES (?1, max(`+sqliteNow+`, coalesce((SELECT f.token FROM sqllock_floor f), 0) + ?2)`, `VALUES (?1, 0 * ?2 + 1`),
			},
		},
		{
			Name: "renewal without its owner", By: []string{checkTold},
			Pair: Pair{"postgres", "cas"}, Faults: []Fault{FaultForce}, Profile: idle,
			edit: edits{"grant.renew": instead(`owner = $3`, `$3 <> ''`)},
		},
		{
			Name: "unknown renewal counted as renewed", By: []string{checkWindows, checkLinear},
			Pair: Pair{"mysql", "insert"}, Faults: []Fault{FaultHalfOpen, FaultStall}, Profile: idle,
			replace: renewing(func(err error) error {
				if errors.Is(err, sqllock.ErrLost) {
					return err
				}

				return nil
			}),
		},
		{
			Name: "heartbeat on another session", By: []string{checkTold},
			Pair: Pair{"postgres", "forupdate"}, Faults: []Fault{FaultSession}, Profile: idle,
			replace: renewing(func(error) error { return nil }),
		},
		{
			Name: "guard without a row lock", By: []string{checkGuard},
			Pair: Pair{"postgres", "cas"}, Faults: []Fault{FaultPause}, Profile: profile{SlowGuard: 0.7},
			edit: edits{"grant.guard": without(`FOR KEY SHARE`)},
		},
		{
			Name: "guard without a row lock", By: []string{checkGuard},
			Pair: Pair{"mariadb", "cas"}, Faults: []Fault{FaultPause}, Profile: profile{SlowGuard: 0.7},
			edit: edits{"grant.guard": without(`LOCK IN SHARE MODE`)},
		},
		{
			Name: "guard by the trust window alone", By: []string{checkGuard},
			Pair: Pair{"mariadb", "insert"}, Faults: []Fault{FaultPause},
			Profile: profile{SlowGuard: 0.7},
			trust:   func(lock *sqllock.Lock, _ time.Duration) handle { return unguarded{lock} },
		},
		{
			Name: "advisory lock through the pool", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "advisory"}, replace: newPooledAdvisory,
		},
		{
			Name: "names without case", By: []string{checkFree},
			Pair: Pair{"mysql", "cas"},
			bind: func(v databases.Values) {
				if name, ok := v["name"].(string); ok {
					v["name"] = strings.ToLower(name)
				}
			},
		},
		{
			Name: "trust from the reply on", By: []string{checkWindows},
			Pair: Pair{"mariadb", "cas"}, Faults: []Fault{FaultLatency},
			Profile: profile{LongHold: 0.5, Idle: 1, NoRenewal: true},
			trust:   func(lock *sqllock.Lock, lease time.Duration) handle { return lateTrust{lock, time.Now(), lease} },
		},
		{
			Name: "reaper goes by the age of the grant", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "cas"}, Profile: idle,
			edit: edits{
				"grant.expired": instead(postgresExpired, `acquired_at <= clock_timestamp() - interval '0.3 s'`),
				"grant.end": both(
					instead(postgresExpired, `acquired_at <= clock_timestamp() - interval '0.3 s'`),
					// Left to itself the row keeps the lease's end, and so the name taken: one fault alone does no harm.
					instead(`SET owner = ''`, `SET owner = '', expires_at = 'epoch'`),
				),
			},
		},
		{
			Name: "batch that grants one row twice", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "cas"}, Faults: []Fault{FaultLatency}, together: true,
			tune: func(s *Settings) { s.Goroutines = 16 },
			edit: edits{"grant.acquire-all": without(`FOR UPDATE OF l SKIP LOCKED`)},
		},
		{
			Name: "cancelled calls are not settled", By: []string{checkClosed},
			Pair: Pair{"mariadb", "insert"}, replace: newUnsettled,
		},
		{
			Name: "handed on under one token", By: []string{checkTokens, checkLinear},
			Pair: Pair{"mariadb", "cas"}, together: true, tune: fewNames, trust: underOneToken(),
		},
		{
			Name: "handed on beyond the reserve", By: []string{checkTokens, checkLinear},
			Pair: Pair{"postgres", "cas"}, together: true, tune: fewNames, replace: newUnreserved,
			edit: edits{"cas.acquire": both(
				instead(`greatest(l.token + `, `(l.token + 1 + 0 * `), instead(`::bigint, `+postgresMicros+`) END`, `::bigint) END`),
			)},
		},
		{
			// What a statement looks for elsewhere it sees as it was when the statement began, and the row that it locks as
			// it is. Such a writer begins while nobody reads and the phase has not ended yet, which lasts longer here.
			Name: "writer looks for readers itself", By: []string{checkWindows, checkLinear, checkGuard},
			Pair: Pair{"postgres", "cas"}, Profile: browsing, tune: oneBook,
			edit: edits{
				"share.longest": instead(`SELECT coalesce(`, `SELECT (SELECT 0 FROM pg_sleep(random() * 0.03)) + coalesce(`),
				"cas.acquire": both(
					slow,
					instead(`OR l.owner = $3
`, `OR l.owner = $3
            OR pg_catalog.starts_with(l.owner, 'shared-') AND NOT EXISTS (
                   SELECT 1 FROM sqllock_shares s WHERE s.name = l.name AND s.expires_at > pg_catalog.clock_timestamp())
`),
				),
			},
		},
		{
			Name: "last reader looks and frees in one", By: []string{checkWindows, checkLinear, checkGuard},
			Pair: Pair{"postgres", "cas"}, Profile: browsing, tune: oneBook,
			edit: edits{
				"share.longest": instead(`SELECT coalesce(`, `SELECT 0 * coalesce(`),
				"share.end": both(
					instead(`UPDATE sqllock_locks l SET`, `WITH slow AS MATERIALIZED (SELECT pg_sleep(random() * 0.03))
UPDATE sqllock_locks l SET`),
					both(
						instead(` WHERE name = $1`, ` FROM slow WHERE name = $1`),
						instead(`joins = $3`, `$3::bigint IS NOT NULL AND NOT EXISTS (
     SELECT 1 FROM sqllock_shares s WHERE s.name = $1 AND s.phase = $2 AND s.expires_at > pg_catalog.clock_timestamp())`),
					),
				),
			},
		},
		{
			Name: "last reader looks, then frees", By: []string{checkWindows, checkLinear, checkGuard},
			Pair: Pair{"mysql", "cas"}, Profile: browsing, tune: oneBook,
			edit: edits{
				"share.longest": instead(`SELECT COALESCE(`, `SELECT 0 * SLEEP(0.03 * RAND()) + COALESCE(`),
				"share.end":     instead(`joins = ?`, `? IS NOT NULL`),
			},
		},
		{
			Name: "adopted by everybody who has the claim", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "cas"}, Profile: profile{Detach: 0.8, Tries: true}, tune: fewNames,
			edit: edits{"grant.pass": instead(`l.owner = $3`, `$3 <> ''`)},
		},
		{
			Name: "newcomer overtakes the line", By: []string{checkOrder},
			Pair: Pair{"postgres", "cas"}, Profile: queueing, tune: fewNames,
			edit: edits{"cas.acquire": instead(`l.waiting = 0 OR $6::boolean OR l.owner = $3`, `$6::boolean IS NOT NULL`)},
		},
		{
			Name: "turn of the second in line", By: []string{checkOrder},
			Pair: Pair{"mysql", "cas"}, Profile: queueing, tune: fewNames, replace: newSkipping,
		},
		{
			// A fleet of it alone is in order: what it writes it reads in the same way.
			Name: "new version keeps times in another zone", By: []string{checkWindows, checkLinear},
			Pair: Pair{"postgres", "cas"}, half: true,
			every: func(s databases.Statement) databases.Statement {
				s.SQL = strings.ReplaceAll(s.SQL, postgresNow, `(`+postgresNow+` - interval '1 hour')`)

				return s
			},
		},
		{
			Name: "wake-up lost before the sleep", By: []string{checkIdle},
			Pair: Pair{"sqlite", "cas"}, Profile: queueing, replace: newSleeping,
			tune: func(s *Settings) { s.Length = 12 * s.Lease },
		},
	}
}

// id tells variants of one name on several pairs apart.
func (v *Variant) id() string { return v.Name + " (" + v.Pair.String() + ")" }

// findVariant returns nil for no name.
func findVariant(id string) (*Variant, error) {
	if id == "" {
		return nil, nil //nolint:nilnil // no variant is the good lock
	}

	for _, v := range Variants() {
		if v.id() == id {
			return v, nil
		}
	}

	return nil, fmt.Errorf("there is no variant %q", id)
}

// strategy makes the worker's strategy, broken or not.
func (v *Variant) strategy(w *worker, db databases.DB) (strategies.Strategy, error) {
	if v == nil {
		return w.Pair.strategy(db), nil
	}

	made := w.Pair.strategy(edited.DB(db, v.change))

	if v.replace == nil {
		return made, nil
	}

	inner, ok := made.(lined)
	if !ok {
		return nil, fmt.Errorf("%T has no line", made)
	}

	return v.replace(w, inner)
}

// options are those of its lockers, beside the usual ones; those of the good lock as planned.
func (v *Variant) options(plain bool) []sqllock.LockerOption {
	if v != nil {
		plain = !v.together
	}

	if !plain {
		return nil
	}

	return []sqllock.LockerOption{sqllock.WithTuning(sqllock.Tuning{NoBatching: true, NoHandOff: true, NoNotifications: true})}
}

// handle is the lock as the worker uses it, broken or not.
func (v *Variant) handle(lock *sqllock.Lock, lease time.Duration) handle {
	if v == nil || v.trust == nil {
		return lock
	}

	return v.trust(lock, lease)
}

// tx is the transaction that a guard runs in, broken or not.
func (v *Variant) tx(tx databases.Tx) databases.Tx {
	if v == nil {
		return tx
	}

	return edited.Tx(tx, v.change)
}

// change is a statement, and its values, as the variant sends them.
func (v *Variant) change(stmt databases.Statement, values databases.Values) (databases.Statement, databases.Values) {
	if edit := v.edit[stmt.Name]; edit != nil {
		stmt = edit(stmt)
	}

	if v.every != nil {
		stmt = v.every(stmt)
	}

	if v.bind != nil {
		values = maps.Clone(values)
		if values == nil {
			values = databases.Values{}
		}

		v.bind(values)
	}

	return stmt, values
}

// lateTrust counts the lease from the reply to the acquisition.
type lateTrust struct {
	*sqllock.Lock

	reply time.Time
	lease time.Duration
}

func (t lateTrust) Remaining() time.Duration {
	return max(t.Lock.Remaining(), t.lease-t.lease/100-10*time.Millisecond-time.Since(t.reply))
}

func (t lateTrust) Err() error {
	if t.Remaining() > 0 {
		return nil
	}

	return t.Lock.Err()
}

// unguarded looks at the clock where the database has to be asked.
type unguarded struct{ *sqllock.Lock }

func (u unguarded) Guard(context.Context, strategies.Tx) error { return u.Err() }

// underOneToken has one token for all holders of a grant, whose owner is the same.
func underOneToken() func(*sqllock.Lock, time.Duration) handle {
	var first sync.Map // token, by owner

	return func(lock *sqllock.Lock, _ time.Duration) handle {
		token, _ := first.LoadOrStore(lock.Owner(), lock.Token())

		return sameToken{lock, token}
	}
}

type sameToken struct {
	*sqllock.Lock

	first any
}

func (s sameToken) Token() int64 {
	token, _ := s.first.(int64)

	return token
}
