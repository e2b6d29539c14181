package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/prove"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/testdatabases"
	"github.com/sqllock/sqllock/databases"
)

// variant is a database whose statements are changed so that locks on it break a promise.
type variant struct {
	what     string
	database string
	// case is what is run, promise what is broken, and old and with what is replaced in statements.
	only, promise, old, with string
}

// rounds is how often it is tried. What a history meets depends on chance, and on how much it gets done in its time, as with
// the known-bad locks of the runs under faults.
func (v variant) rounds() int {
	if strings.HasPrefix(v.only, "history/") {
		return 5
	}

	return 1
}

// variants are for each check of the history one that breaks it, and some for cases of the suite: a database that
// understands a statement in another way.
func variants() []variant {
	return []variant{
		{"takes what is held", "sqlite", "exclusion/", "one at a time", "l.expires_at + l.lock_delay_us <= ", "0 <= "},
		{"takes what is held", "sqlite", "history/trust windows", "one at a time", "l.expires_at + l.lock_delay_us <= ", "0 <= "},
		{"grants smaller tokens", "sqlite", "history/token order", "tokens grow", "max(l.token + ?2, excluded.token)", "l.token - ?2"},
		{"keeps what is released", "sqlite", "history/left after Close", "Close leaves nothing", "SET owner = '', expires_at = 0, lock_delay_us = 0", "SET owner = owner"},
		{
			"keeps the name of what is released", "sqlite", "history/free in time", "no orphans",
			"SET owner = '', expires_at = 0, lock_delay_us = 0", "SET owner = '', expires_at = expires_at + 1000000000, lock_delay_us = 0",
		},
		{"locks no rows in shared mode", "postgres", "history/guard", "guard", " FOR KEY SHARE", ""},
		{"locks no rows in shared mode", "mysql", "history/guard", "guard", "LOCK IN SHARE MODE", ""},
		{"locks no rows in shared mode", "mariadb", "history/guard", "guard", "LOCK IN SHARE MODE", ""},
		{"does not skip what is locked", "postgres", "batch/a locked row delays nobody else", "many in one statement", "SKIP LOCKED", ""},
	}
}

// variantVariable has the JSON of what a process that tries a strategy replaces.
const variantVariable = "SQLLOCK_TEST_PROVE"

// useVariant makes this process one with a variant.
func useVariant() {
	var replaced [2]string
	if json.Unmarshal([]byte(os.Getenv(variantVariable)), &replaced) != nil {
		return
	}

	history = 6 * time.Second
	change := func(s databases.Statement) databases.Statement {
		s.SQL = strings.ReplaceAll(s.SQL, replaced[0], replaced[1])

		return s
	}
	edit = func(db databases.DB) databases.DB { return editedDB{db, change} }
	editTx = func(tx databases.Tx) databases.Tx { return editedTx{tx, editedSession{tx, change}} }
}

type editedDB struct {
	databases.DB

	change func(databases.Statement) databases.Statement
}

func (d editedDB) Conn(ctx context.Context) (databases.Conn, error) {
	conn, err := d.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}

	return editedConn{conn, editedSession{conn, d.change}}, nil
}

type editedSession struct {
	databases.Session

	change func(databases.Statement) databases.Statement
}

func (s editedSession) Exec(ctx context.Context, stmt databases.Statement, v databases.Values) (databases.Result, error) {
	return s.Session.Exec(ctx, s.change(stmt), v)
}

func (s editedSession) Query(ctx context.Context, stmt databases.Statement, v databases.Values, each func(databases.Row) error) error {
	return s.Session.Query(ctx, s.change(stmt), v, each)
}

type editedConn struct {
	databases.Conn

	session editedSession
}

func (c editedConn) Exec(ctx context.Context, s databases.Statement, v databases.Values) (databases.Result, error) {
	return c.session.Exec(ctx, s, v)
}

func (c editedConn) Query(ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error) error {
	return c.session.Query(ctx, s, v, each)
}

type editedTx struct {
	databases.Tx

	session editedSession
}

func (t editedTx) Exec(ctx context.Context, s databases.Statement, v databases.Values) (databases.Result, error) {
	return t.session.Exec(ctx, s, v)
}

func (t editedTx) Query(ctx context.Context, s databases.Statement, v databases.Values, each func(databases.Row) error) error {
	return t.session.Query(ctx, s, v, each)
}

// verdictOf is the verdict of a run with --json on a promise with strategy cas.
func verdictOf(t *testing.T, i *invocation, promise string) prove.Verdict {
	t.Helper()

	var report proofReport
	if err := json.Unmarshal([]byte(i.stdout.String()), &report); err != nil {
		t.Fatalf("%v in %q; stderr:\n%s", err, i.stdout.String(), i.stderr.String())
	}

	for _, v := range report.Strategies[0].Promises {
		if v.Promise == promise {
			return v.Verdict
		}
	}

	t.Fatalf("there is no verdict on %q in %s", promise, i.stdout.String())

	return ""
}

// TestProveFindsWhatIsBroken proves databases on which locks break a promise. That the same cases keep it without the
// fault other tests show, and for the history TestProveHistory.
func TestProveFindsWhatIsBroken(t *testing.T) {
	t.Parallel()

	for _, v := range variants() {
		if !slices.Contains(testdatabases.Some(t), v.database) {
			continue
		}

		t.Run(v.database+"/"+v.only+"/"+v.what, func(t *testing.T) {
			t.Parallel()

			var i *invocation

			for range v.rounds() {
				i = replacing(t, testdatabases.Fresh(t, v.database), v.old, v.with, v.only)
				if verdictOf(t, i, v.promise) == prove.Broken {
					i.want(exitFailed)

					return
				}
			}

			t.Errorf("%q is %s for a database that %s, want BROKEN\n%s", v.promise, verdictOf(t, i, v.promise), v.what, i.stdout.String())
		})
	}
}

// replacing proves some cases of strategy cas with a text in the place of another in all statements.
func replacing(t *testing.T, url, old, with, only string) *invocation {
	t.Helper()

	encoded, err := json.Marshal([]string{old, with})
	if err != nil {
		t.Fatal(err)
	}

	return in(t, url, []string{variantVariable + "=" + string(encoded)}, "doctor", "--prove", "--strategy", "cas", "--json", "--case", only)
}

// TestProveHistory has a history in which nothing is broken, and nothing is left out.
func TestProveHistory(t *testing.T) {
	t.Parallel()

	for _, name := range testdatabases.Some(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			i := replacing(t, testdatabases.Fresh(t, name), "no text of a statement", "", "history/")
			i.want(0)

			for _, promise := range []string{"one at a time", "tokens grow", "guard", "Close leaves nothing", "no orphans"} {
				if got := verdictOf(t, i, promise); got != prove.Kept {
					t.Errorf("%q is %s, want kept\n%s", promise, got, i.stdout.String())
				}
			}
		})
	}
}

// removalOf is the statement that a proof names for the case that it crashes.
func removalOf(t *testing.T, i *invocation) string {
	t.Helper()

	said := regexp.MustCompile(`after a crash, run: (.+)`)

	eventually(t, "the proof says how to remove its tables", func() bool { return said.MatchString(i.stderr.String()) })

	return said.FindStringSubmatch(i.stderr.String())[1]
}

// placesIn are the places of proofs in a database.
func placesIn(t *testing.T, url string) []string {
	t.Helper()

	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		folders, err := filepath.Glob(filepath.Join(filepath.Dir(path), "sqllock_prove_*"))
		if err != nil {
			t.Fatal(err)
		}

		return folders
	}

	query := "SELECT schema_name FROM information_schema.schemata"
	if strings.HasPrefix(url, "postgres") {
		query = "SELECT nspname::text FROM pg_catalog.pg_namespace"
	}

	db := testdatabases.Open(t, t.Context(), url)
	defer db.Close()

	rows, err := db.SQL.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }()

	var places []string

	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}

		if strings.HasPrefix(name, "sqllock_prove_") {
			places = append(places, name)
		}
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	return places
}

// TestProveCleansUpWhenInterrupted ends a proof in the middle of its cases.
func TestProveCleansUpWhenInterrupted(t *testing.T) {
	t.Parallel()

	for _, name := range testdatabases.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := testdatabases.Fresh(t, name)
			i := start(t, url, "doctor", "--prove", "--strategy", "cas", "--case", "s/")
			statement := removalOf(t, i)

			eventually(t, "a promise is kept", func() bool { return strings.Contains(i.stderr.String(), ": kept") })

			made := placesIn(t, url)
			if !slices.ContainsFunc(made, func(place string) bool { return strings.Contains(statement, place) }) {
				t.Errorf("of the places %q none is in %q", made, statement)
			}

			if err := i.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}

			i.wait()
			i.want(exitSignal+int(syscall.SIGTERM), "terminated")

			for _, place := range placesIn(t, url) {
				if strings.Contains(statement, place) {
					t.Errorf("%s is still there; stderr:\n%s", place, i.stderr.String())
				}
			}
		})
	}
}

// TestProveTellsOfACrash kills a proof: the next one names what it left.
func TestProveTellsOfACrash(t *testing.T) {
	t.Parallel()

	url := testdatabases.Fresh(t, "sqlite")
	i := start(t, url, "doctor", "--prove", "--strategy", "cas")
	statement := removalOf(t, i)

	if err := i.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	i.wait()

	next := run(t, url, "doctor", "--prove", "--strategy", "cas", "--case", "names/")
	next.want(0, "another proof runs here, or has crashed; if none runs: "+statement)

	// A path of its own that is relative is its own, too.
	relative := prepare(t, "sqlite:locks.db", "doctor", "--prove", "--strategy", "cas", "--case", "names/")
	relative.cmd.Dir = t.TempDir()
	relative.start()
	relative.wait()
	relative.want(0)

	if said := relative.stderr.String(); strings.Contains(said, "another proof") {
		t.Errorf("the only proof said:\n%s", said)
	}
}

// TestProveNeedsAPrivilege lets an account without it prove, once it has done what the message says, and in an empty
// database without that.
func TestProveNeedsAPrivilege(t *testing.T) {
	t.Parallel()

	for _, name := range testdatabases.Servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			owner := testdatabases.Fresh(t, name)
			user, app := restrict(t, owner)
			args := []string{"doctor", "--prove", "--strategy", "forupdate", "--case", "session/"}

			i := run(t, app, args...)
			i.want(exitUnavailable, "GRANT ", "--prove-here")

			grant := regexp.MustCompile(`run (GRANT .+), or name`).FindStringSubmatch(i.stderr.String())
			if grant == nil {
				t.Fatalf("stderr has no statement:\n%s", i.stderr.String())
			}

			testdatabases.Execute(t, owner, grant[1])
			run(t, app, args...).want(0)

			// In a database that has none of the tables, without the right to make another.
			if name == "postgres" {
				testdatabases.Execute(t, owner, "REVOKE CREATE ON DATABASE "+regexp.MustCompile(`ON DATABASE (\S+)`).FindStringSubmatch(grant[1])[1]+" FROM "+user)
				testdatabases.Execute(t, owner, "GRANT CREATE ON SCHEMA public TO "+user)
			} else {
				testdatabases.Execute(t, owner, strings.NewReplacer("GRANT", "REVOKE", " TO ", " FROM ").Replace(grant[1]))
				testdatabases.Execute(t, owner, "GRANT ALL ON "+strings.TrimPrefix(regexp.MustCompile(`/[^/?]+(\?|$)`).FindString(owner), "/")+".* TO "+user)
			}

			run(t, app, append(args, "--prove-here")...).want(0)

			// Nothing is left there, and tables of somebody's own are not touched.
			run(t, app, "migrate", "up").want(0)
			run(t, app, append(args, "--prove-here")...).want(exitUnavailable, "there are tables of sqllock already")
			run(t, app, "run", "--name", "a", "--", "true").want(0)
		})
	}
}
