package conformance_test

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/internal/single"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
)

// injection is where among the awkward names the one is that was once read as SQL,
// as which it took another lock.
const injection = 7

// awkward are names that some character set of a connection reads as another, or
// some quoting as no name at all.
var awkward = []string{
	"plain", "Plain ", "é", "e\u0301", "ÿþ", "Łódź", "你", "你' OR (l.name=0x61) -- ", "\u7e17", "\u7e17'", // 0xE7B897
	"\u00bf'", "\u00bf\\", "\uff3c'", "表'", "ソ\\", "貼\\'", "'", "''", `\`, `\'`, `\\'`, `"`, "`", "%", "_", "?", ":a", "@a", "{\"a\":[1]}",
	"\n\r\t\x1a\x7f", "\u2028", "\ufeff", "\ufffd", "\U0001f512", "\U0010ffff", "--", "/*", "x'61'", "0x61", "[]{}|~^`$#@",
	strings.Repeat("é", 100), strings.Repeat("你", 70),
}

// fragments make names at random: each is, or ends, or begins a character in some
// character set, or a quotation.
var fragments = []string{
	"'", `\`, `"`, "`", "你", "縗", "表", "ソ", "貼", "é", "¿", "ÿ", `\\`, "%", "_", "\n", "\x1a", "a", " ", "--", "/*", "*/", "OR 1=1", "#", ";",
	"\u0080", "\u00a0", "\u07ff", "\u0800", "\uffff", "\U00010000", "\U0010ffff",
}

// randomNames are n of them.
func randomNames(n int) []string {
	names := map[string]bool{}

	for len(names) < n {
		var name strings.Builder

		name.WriteByte('~') // no other's

		for range 1 + rand.IntN(12) {
			name.WriteString(fragments[rand.IntN(len(fragments))])
		}

		names[name.String()] = true
	}

	return slices.Collect(maps.Keys(names))
}

// characterSets are those that a client may use, without those of which it would
// send more than a byte for each character of SQL.
func characterSets(t *testing.T, db *sql.DB) []string {
	t.Helper()

	rows, err := db.QueryContext(t.Context(), `SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS
 WHERE CHARACTER_SET_NAME NOT IN ('ucs2', 'utf16', 'utf16le', 'utf32') ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }()

	var sets []string

	for rows.Next() {
		var set string
		if err := rows.Scan(&set); err != nil {
			t.Fatal(err)
		}

		sets = append(sets, set)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	return sets
}

// TestCharacterSets locks awkward names through connections of every character
// set, and looks at them through another connection.
func TestCharacterSets(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			beside := mysqlPool(t, config)
			modes := map[string]map[string]string{
				// As on a server that ignores what the client asks for.
				"as latin1 whatever asked": {
					"character_set_client": "latin1", "character_set_connection": "latin1", "character_set_results": "latin1",
				},
				"client and connection differ": {
					"character_set_client": "latin1", "character_set_connection": "cp1250", "character_set_results": "greek",
				},
				"as the handshake says": {},
				"nothing converted":     {"character_set_results": "NULL"},
			}

			for _, set := range characterSets(t, beside) {
				modes[set] = map[string]string{"charset": set}
			}

			// MariaDB reads no JSON path in it, and MySQL takes its brackets for letters.
			delete(modes, "swe7")

			for _, mode := range slices.Sorted(maps.Keys(modes)) {
				for _, interpolate := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/interpolate=%t", mode, interpolate), func(t *testing.T) {
						t.Parallel()

						c := charsetCase{
							pool: withParameters(t, config, modes[mode], interpolate), beside: beside,
							prefix: fmt.Sprintf("%s/%t/", mode, interpolate), random: randomNames(20), all: slices.Contains([]string{"latin1", "binary", "gbk"}, mode),
						}
						c.together(t)
						c.alone(t)
					})
				}
			}
		})
	}
}

// withParameters is a pool of the same database with parameters in its DSN.
func withParameters(t *testing.T, config *driver.Config, parameters map[string]string, interpolate bool) *sql.DB {
	t.Helper()

	changed := config.Clone()
	changed.InterpolateParams = interpolate
	changed.Params = maps.Clone(parameters)

	if set := parameters["charset"]; set != "" {
		delete(changed.Params, "charset")

		if err := changed.Apply(driver.Charset(set, "")); err != nil {
			t.Fatal(err)
		}
	}

	return mysqlPool(t, changed)
}

// charsetCase is a locker's pool, and a connection that sees bytes.
type charsetCase struct {
	pool   *sql.DB
	beside *sql.DB
	prefix string
	random []string // names, of which each case has others
	all    bool     // strategies, and not only those that hold no connection
}

func (c charsetCase) requests(owner, strategy string) []strategies.Request {
	names := slices.Concat(awkward, c.random)
	requests := make([]strategies.Request, len(names))

	for i, name := range names {
		requests[i] = strategies.Request{
			Name: c.prefix + strategy + "/" + name, Owner: fmt.Sprintf("%s%s%d", c.prefix, owner, i), Lease: time.Minute,
			Holder: strategies.Holder{Host: "höst", PID: i + 1, Label: name, Metadata: `{"ключ":"` + strings.Trim(name, `\"'`) + `"}`},
		}
	}

	return requests
}

// together is about batches.
func (c charsetCase) together(t *testing.T) {
	t.Helper()

	s := cas.New(mysql.New(c.pool))
	requests := c.requests("together", "cas")

	grants, errs := s.Acquire(t.Context(), requests)
	for i, err := range errs {
		if err != nil {
			t.Fatalf("Acquire() of %q = %v, want the grant", requests[i].Name, err)
		}
	}

	c.wantRows(t, requests)

	// Real rows that are about to end, and are renewed.
	names := make([]any, len(requests))
	for i, r := range requests {
		names[i] = r.Name
	}

	exec(t, c.beside, "UPDATE sqllock_leases FORCE INDEX (PRIMARY) SET expires_at = expires_at - 59000000 WHERE name IN (?"+strings.Repeat(", ?", len(names)-1)+")",
		names...)

	for i, err := range s.Renew(t.Context(), grants, time.Minute) {
		if err != nil {
			t.Errorf("Renew() of %q = %v, want nil", requests[i].Name, err)
		}
	}

	c.wantRows(t, requests)
	c.wantHeld(t, s, requests)

	_, errs = s.Release(t.Context(), grants)
	for i, err := range errs {
		if err != nil {
			t.Errorf("Release() of %q = %v, want nil", requests[i].Name, err)
		}
	}

	c.wantHeld(t, s, nil)
}

// alone is about one lock at a time.
func (c charsetCase) alone(t *testing.T) {
	t.Helper()

	tried := catalog.Leased()
	if c.all {
		tried = catalog.All()
	}

	for _, strategy := range tried {
		s := strategy.Make(mysql.New(c.pool))

		for _, r := range c.requests("alone", strategy.Name)[injection-1 : injection+2] {
			g, err := single.TryAcquire(t.Context(), s, r)
			if err != nil {
				t.Fatalf("TryAcquire(%q) with %s = %v, want the grant", r.Name, strategy.Name, err)
			}

			if err := g.Renew(t.Context(), time.Minute); err != nil {
				t.Errorf("Renew() of %q with %s = %v, want nil", r.Name, strategy.Name, err)
			}

			c.wantRows(t, []strategies.Request{r})
			c.guard(t, g, r.Name)

			c.wantHeld(t, s, []strategies.Request{r})

			if err := g.Release(t.Context()); err != nil {
				t.Errorf("Release() of %q with %s = %v, want nil", r.Name, strategy.Name, err)
			}

			c.wantHeld(t, s, nil)
		}

		c.force(t, s, c.requests("forced", strategy.Name)[injection])

		if s.Features().Shared {
			c.read(t, s, c.requests("read", strategy.Name)[injection-1:injection+1])
		}
	}
}

// read has two readers of one name, of whom each is told as it is.
func (c charsetCase) read(t *testing.T, s strategies.Strategy, readers []strategies.Request) {
	t.Helper()

	var grants []single.Grant

	for i := range readers {
		readers[i].Name, readers[i].Mode, readers[i].First = readers[0].Name, strategies.Shared, true
		r := readers[i]

		g, err := single.TryAcquire(t.Context(), s, r)
		if err != nil {
			t.Fatalf("TryAcquire(%q) of a reader = %v, want the grant", r.Name, err)
		}

		grants = append(grants, g)
	}

	c.wantHeld(t, s, readers)

	for _, g := range grants {
		c.guard(t, g, readers[0].Name)

		if err := errors.Join(g.Renew(t.Context(), time.Minute), g.Check(t.Context()), g.Release(t.Context())); err != nil {
			t.Errorf("Renew(), Check() and Release() of a reader of %q = %v, want nil", readers[0].Name, err)
		}
	}

	c.wantHeld(t, s, nil)
}

// force takes a lock away, whose holder is told why.
func (c charsetCase) force(t *testing.T, s strategies.Strategy, r strategies.Request) {
	t.Helper()

	const reason = `Wartung: müßig, 你' "\`

	g, err := single.TryAcquire(t.Context(), s, r)
	if err != nil {
		t.Fatalf("TryAcquire(%q) = %v, want the grant", r.Name, err)
	}

	if forced, err := s.ForceRelease(t.Context(), strategies.Status{Name: r.Name, Token: g.Token}, reason); err != nil || !forced {
		t.Fatalf("ForceRelease() of %q = %t, %v, want true", r.Name, forced, err)
	}

	var lost *strategies.LostError
	if err := g.Renew(t.Context(), time.Minute); !errors.As(err, &lost) || lost.Detail != reason {
		t.Errorf("Renew() of %q after ForceRelease() = %v, want the reason %q", r.Name, err, reason)
	}
}

// guard pins a grant in a transaction of the same pool.
func (c charsetCase) guard(t *testing.T, g single.Grant, name string) {
	t.Helper()

	tx, err := c.pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = tx.Rollback() }()

	if err := g.Guard(t.Context(), mysql.Tx(tx)); err != nil {
		t.Errorf("Guard() of %q = %v, want nil", name, err)
	}
}

// wantRows compares what the tables have with what was asked for, byte for byte.
func (c charsetCase) wantRows(t *testing.T, requests []strategies.Request) {
	t.Helper()

	type row struct{ owner, host, label, metadata string }

	rows, err := c.beside.QueryContext(t.Context(), `SELECT l.name, e.owner, l.host, l.label, l.metadata
  FROM sqllock_locks l LEFT JOIN sqllock_leases e ON e.name = l.name AND e.expires_at > UNIX_TIMESTAMP() * 1000000 + 30000000
 WHERE LEFT(l.name, LENGTH(?)) = ?`, c.prefix, c.prefix)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }()

	got := map[string]row{}

	for rows.Next() {
		var (
			name  string
			owner sql.NullString
			r     row
		)

		if err := rows.Scan(&name, &owner, &r.host, &r.label, &r.metadata); err != nil {
			t.Fatal(err)
		}

		r.owner = owner.String
		got[name] = r
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	for _, r := range requests {
		want := row{r.Owner, r.Holder.Host, r.Holder.Label, r.Holder.Metadata}
		if got[r.Name] != want {
			t.Errorf("the row of %q is %q, want %q with a lease of a minute", r.Name, got[r.Name], want)
		}
	}

	known := map[string]bool{}

	for _, strategy := range catalog.All() {
		for _, r := range c.requests("", strategy.Name) {
			known[r.Name] = true
		}
	}

	for name := range got {
		if !known[name] {
			t.Errorf("there is a row %q, which nobody asked for", name)
		}
	}
}

// wantHeld compares what a strategy lists with what was acquired.
func (c charsetCase) wantHeld(t *testing.T, s strategies.Strategy, requests []strategies.Request) {
	t.Helper()

	type held struct {
		name, owner string
		holder      strategies.Holder
	}

	var want, got []held

	for _, r := range requests {
		want = append(want, held{r.Name, r.Owner, r.Holder})
	}

	slices.SortFunc(want, func(a, b held) int { return strings.Compare(a.name, b.name) })

	list, err := s.List(t.Context(), strategies.Filter{Prefix: c.prefix})
	if err != nil {
		t.Fatal(err)
	}

	for _, h := range list {
		got = append(got, held{h.Name, h.Owner, h.Holder})
	}

	if !slices.Equal(got, want) {
		t.Errorf("List() = %v, want %v", got, want)
	}
}
