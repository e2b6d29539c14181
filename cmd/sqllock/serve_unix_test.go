//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// serving starts "sqllock serve" and returns its URL, without the slash at its end.
func serving(t *testing.T, database string, flags ...string) (i *invocation, base string) {
	t.Helper()

	i = start(t, database, append([]string{"serve", "--listen", "127.0.0.1:0", "--every", "0.1"}, flags...)...)
	eventually(t, "it prints its URL", func() bool { return strings.HasSuffix(i.stdout.String(), "/\n") })

	return i, strings.TrimSuffix(i.stdout.String(), "/\n")
}

// browse returns the status and the text of an answer.
func browse(t *testing.T, method, address, form string) (status int, body string) {
	t.Helper()

	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}

	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}

	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()

	read, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}

	return answer.StatusCode, string(read)
}

// TestServe looks at locks that are held, by two readers, a writer that waits under a lock of its
// own, and a name that nobody holds, and takes one away.
func TestServe(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, ctx context.Context, database string) {
		t.Helper()
		run(t, database, "migrate", "up").want(0)

		db := openDatabase(t, ctx, database)
		t.Cleanup(func() { _ = db.Close() })

		locker := func(label string) *sqllock.Locker {
			locker, err := sqllock.New(cas.New(db.Locks), sqllock.WithLabel(label))
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(ctx)) })

			return locker
		}

		const name = "a/<b>?\n"

		first, second, writer := locker("first reader"), locker("second reader"), locker("the <writer>")

		for _, reader := range []*sqllock.Locker{first, second} {
			if _, err := reader.Acquire(ctx, name, sqllock.WithShared()); err != nil {
				t.Fatal(err)
			}
		}

		own, err := writer.Acquire(ctx, "own")
		if err != nil {
			t.Fatal(err)
		}

		waits, stop := context.WithCancel(own.Context())
		waited := make(chan struct{})

		go func() {
			defer close(waited)

			_, _ = writer.Acquire(waits, name)
		}()

		defer func() { stop(); <-waited }()

		run(t, database, "run", "--name", "kept", "--min-hold", "10m", "--", "true").want(0)

		i, base := serving(t, database)

		eventually(t, "all is shown", func() bool {
			status, body := browse(t, http.MethodGet, base+"/", "")

			return status == http.StatusOK && strings.Contains(body, "first reader") && strings.Contains(body, "second reader") &&
				strings.Contains(body, ">reader</td>") && strings.Contains(body, "released: minimum hold") &&
				strings.Contains(body, `data-label="Holds"><div><a href="/name?name=own">`) &&
				strings.Contains(body, "the &lt;writer&gt;") && !strings.Contains(body, "<b>")
		})

		query := url.Values{"name": {name}}.Encode()

		if status, body := browse(t, http.MethodGet, base+"/name?"+query, ""); status != http.StatusOK || !strings.Contains(body, `<bdi>a/&lt;b&gt;?\n</bdi>`) {
			t.Errorf("the page of the name has status %d:\n%s", status, body)
		}

		if status, body := browse(t, http.MethodGet, base+"/doctor", ""); status != http.StatusOK || !strings.Contains(body, "the migrations are applied") {
			t.Errorf("the doctor's page has status %d:\n%s", status, body)
		}

		if status, _ := browse(t, http.MethodGet, base+"/name?name="+strings.Repeat("x", 256), ""); status != http.StatusBadRequest {
			t.Errorf("a name that is too long has status %d, want %d", status, http.StatusBadRequest)
		}

		if err := i.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}

		i.wait()
		i.want(0)

		if said := i.stderr.String(); said != "" {
			t.Errorf("it said on stderr: %s", said)
		}
	})
}

// TestHealthOfMany asks for the health of a database with many locks, which nobody looks at, for many at the same time.
func TestHealthOfMany(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, ctx context.Context, database string) {
		t.Helper()
		run(t, database, "migrate", "up").want(0)
		hold(t, database, "--lease", "1h")

		db := openDatabase(t, ctx, database)
		t.Cleanup(func() { _ = db.Close() })

		for _, table := range []string{"sqllock_locks", "sqllock_leases"} {
			if table == "sqllock_locks" || db.Target.Dialect == databases.MySQL {
				multiply(t, ctx, db, table)
			}
		}

		if locks := strings.Count(run(t, database, "ls", "--json").stdout.String(), `"name":`); locks < 20_000 {
			t.Fatalf("ls lists %d locks, want 20,000", locks)
		}

		_, base := serving(t, database)

		var all sync.WaitGroup

		for range 60 {
			all.Go(func() {
				for range 5 {
					if status, body := browse(t, http.MethodGet, base+"/healthz", ""); status != http.StatusOK {
						t.Errorf("/healthz has status %d: %s", status, body)
					}
				}
			})
		}

		all.Wait()
	})
}

// multiply makes 20,000 rows more of each that is in a table, with other names.
func multiply(t *testing.T, ctx context.Context, db *dsn.Database, table string) {
	t.Helper()

	rows, err := db.SQL.QueryContext(ctx, "SELECT * FROM "+table+" WHERE 1 = 0")
	if err != nil {
		t.Fatal(err)
	}

	defer rows.Close()

	columns, err := rows.Columns()
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}

	var digits, from []string

	for i, most := range []int{2, 10, 10, 10, 10} {
		var values []string
		for digit := range most {
			values = append(values, fmt.Sprintf("SELECT '%d' AS digit", digit))
		}

		digits = append(digits, fmt.Sprintf("d%d.digit", i))
		from = append(from, fmt.Sprintf("(%s) d%d", strings.Join(values, " UNION ALL "), i))
	}

	name := strings.Join(digits, " || ")
	if db.Target.Dialect == databases.MySQL {
		name = "CONCAT(" + strings.Join(digits, ", ") + ")"
	}

	values := slices.Clone(columns)
	values[slices.Index(columns, "name")] = name

	if _, err := db.SQL.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %[1]s, %[4]s",
		table, strings.Join(columns, ", "), strings.Join(values, ", "), strings.Join(from, ", "))); err != nil {
		t.Fatal(err)
	}
}

func TestServeUsage(t *testing.T) {
	t.Parallel()

	database := migrated(t)

	run(t, database, "serve", "--listen", "8080").want(exitUsage, "--listen 8080 is not host:port")
	run(t, database, "serve", "--every", "0.01").want(exitUsage, "--every 10ms is shorter than 100ms")
	run(t, database, "serve", "--listen", "192.0.2.1:0").want(exitInternal, "192.0.2.1:0")
	in(t, database, []string{"SQLLOCK_STRATEGY=bogus"}, "serve").want(exitUsage, "SQLLOCK_STRATEGY: no strategy")
	run(t, "", "serve", "--dsn=").want(exitUsage, "--dsn is empty")

	for listen, warned := range map[string]string{
		"0.0.0.0:0": "can see the names of locks and who holds them\n",
		":0":        "",
	} {
		i := start(t, database, "serve", "--listen", listen)
		eventually(t, "it prints its URL", func() bool { return strings.HasPrefix(i.stdout.String(), "http://") })

		if err := i.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}

		i.wait()
		i.want(0)

		if said := i.stderr.String(); !strings.HasSuffix(said, warned) || warned == "" && said != "" {
			t.Errorf("serve --listen %s said %q, want %q", listen, said, warned)
		}
	}
}
