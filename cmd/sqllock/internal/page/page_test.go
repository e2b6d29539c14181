package page_test

import (
	"context"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/page"
	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// fake is a database that remembers what it was asked.
type fake struct {
	mu       sync.Mutex
	locks    page.Locks
	status   sqllock.Status
	findings []doctor.Finding
	err      error
	hangs    bool

	looks, answers, examined int
}

func (f *fake) Look(ctx context.Context) (page.Locks, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.looks++

	if f.hangs {
		<-ctx.Done()

		return page.Locks{}, ctx.Err()
	}

	return f.locks, f.err
}

// Answer looks at nothing else.
func (f *fake) Answer(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.answers++

	if f.hangs {
		<-ctx.Done()

		return "", ctx.Err()
	}

	return f.locks.Pause, f.err
}

func (f *fake) Inspect(_ context.Context, name string, slot int) (sqllock.Status, error) {
	status := f.status
	status.Name, status.Slot = name, slot

	if name == "" {
		return status, sqllock.ErrInvalidName
	}

	return status, f.err
}

func (f *fake) Examine(context.Context) ([]doctor.Finding, error) {
	f.examined++

	return f.findings, f.err
}

func (f *fake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.err = err
}

func handler(tb testing.TB, source *fake, change func(*page.Config)) http.Handler {
	tb.Helper()

	config := page.Config{Source: source, Database: "postgres://app@db/app", Host: "127.0.0.1", Every: time.Second}
	if change != nil {
		change(&config)
	}

	return page.New(config)
}

// get answers a request for a path of this machine.
func get(tb testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	tb.Helper()

	return do(h, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "http://localhost:8080"+path, nil))
}

func do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)

	return w
}

// want fails the test unless the answer has the status and all of the texts.
func want(tb testing.TB, w *httptest.ResponseRecorder, status int, said ...string) {
	tb.Helper()

	if w.Code != status {
		tb.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}

	for _, text := range said {
		if !strings.Contains(w.Body.String(), text) {
			tb.Errorf("the answer is\n%s\nwant %q in it", w.Body, text)
		}
	}
}

func held(name, label string) sqllock.Status {
	return sqllock.Status{
		Name: name, Strategy: "cas", Token: 17, Holder: sqllock.Holder{Host: "vm", PID: 7, Label: label},
		HeldFor: time.Minute, Remaining: 20 * time.Second, Owner: "secret-owner",
	}
}

var hostile = []string{
	"<script>alert(1)</script>", `'";--`, "two\nlines", "carriage\r\nreturn", "rtl \u202egnp.exe", strings.Repeat("ü", 127) + "x",
	"customer/7?x=1&y=2#z", "../..", "%2e%3Cb%3E", `javascript:alert(1)`, "{{.}}", "a+b c", "\x1b[2J",
}

var link = regexp.MustCompile(`href="(/name\?[^"]*)"`)

// TestHostileNames looks at names that would be more than text, and follows what links to them.
func TestHostileNames(t *testing.T) {
	t.Parallel()

	for _, name := range hostile {
		t.Run(plain.Text(name), func(t *testing.T) {
			t.Parallel()

			source := &fake{
				locks: page.Locks{
					Locks:   []sqllock.Status{held(name, name)},
					Waiters: []sqllock.Waiter{{Name: name, Place: 1, Holder: sqllock.Holder{Label: name, Metadata: name}, Waited: time.Second}},
				},
				status: sqllock.Status{Token: 17, Holder: sqllock.Holder{Label: name, Metadata: name}, Ended: sqllock.ReasonForced, Detail: name},
			}
			h := handler(t, source, nil)

			w := get(t, h, "/")
			want(t, w, http.StatusOK)

			links := link.FindAllStringSubmatch(w.Body.String(), -1)
			if len(links) != 2 {
				t.Fatalf("%d links to the name, want those of its holder and of its waiter", len(links))
			}

			for _, found := range links {
				path := html.UnescapeString(found[1])

				w := get(t, h, path)
				want(t, w, http.StatusOK)

				if strings.HasPrefix(path, "/name") {
					u, err := url.Parse(path)
					if err != nil || u.Query().Get("name") != name {
						t.Errorf("%s leads to %q (%v), want %q", path, u.Query().Get("name"), err, name)
					}
				}

				harmless(t, w.Body.String(), name)
			}

			harmless(t, w.Body.String(), name)
		})
	}
}

// harmless fails the test if a page has what only the text of a name could bring into it.
func harmless(tb testing.TB, body, name string) {
	tb.Helper()

	for _, bad := range []string{"<script>alert", "<b>", "\u202e", "\x1b", "two\nlines", `href="javascript`, "secret-owner"} {
		if strings.Contains(body, bad) {
			tb.Errorf("the page of %q has %q in it:\n%s", name, bad, body)
		}
	}

	// One script, which is a file.
	if n := strings.Count(body, "<script"); n > 1 || n == 1 && !strings.Contains(body, `<script src="/script.js" defer></script>`) {
		tb.Errorf("%d scripts in the page of %q", n, name)
	}
}

func TestHost(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		listened, host string
		status         int
	}{
		{"127.0.0.1", "localhost:8080", http.StatusOK},
		{"127.0.0.1", "LOCALHOST", http.StatusOK},
		{"127.0.0.1", "127.0.0.1:8080", http.StatusOK},
		{"127.0.0.1", "127.9.9.9", http.StatusOK},
		{"127.0.0.1", "[::1]:8080", http.StatusOK},
		{"127.0.0.1", "[::1]", http.StatusOK},
		{"127.0.0.1", "evil.example", http.StatusMisdirectedRequest},
		{"127.0.0.1", "evil.example:8080", http.StatusMisdirectedRequest},
		{"127.0.0.1", "localhost.evil.example", http.StatusMisdirectedRequest},
		{"127.0.0.1", "127.0.0.1.evil.example", http.StatusMisdirectedRequest},
		{"127.0.0.1", "192.0.2.1", http.StatusMisdirectedRequest},
		{"127.0.0.1", "", http.StatusMisdirectedRequest},
		{"locks.example", "Locks.example:8080", http.StatusOK},
		{"locks.example", "192.0.2.1", http.StatusMisdirectedRequest},
		{"192.0.2.1", "192.0.2.1:8080", http.StatusOK},
		{"192.0.2.1", "192.0.2.2:8080", http.StatusMisdirectedRequest},
		{"0.0.0.0", "192.0.2.2:8080", http.StatusOK},
		{"::", "[2001:db8::1]:8080", http.StatusOK},
		{"0.0.0.0", "evil.example", http.StatusMisdirectedRequest},
	} {
		for _, path := range []string{"/", "/name?name=a", "/healthz", "/metrics", "/style.css"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
			r.Host = c.host

			w := do(handler(t, &fake{}, func(config *page.Config) { config.Host = c.listened }), r)
			if w.Code != c.status {
				t.Errorf("%s of host %q, listening on %q: status %d, want %d", path, c.host, c.listened, w.Code, c.status)
			}

			for name, value := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "same-origin",
			} {
				if w.Header().Get(name) != value {
					t.Errorf("%s has %s %q, want %q", path, name, w.Header().Get(name), value)
				}
			}

			if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s has the policy %q", path, policy)
			}
		}
	}
}

// TestDatabaseGone shows what was seen last.
func TestDatabaseGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fake{err: errors.New("no answer <in> time")}
		h := handler(t, source, nil)

		want(t, get(t, h, "/"), http.StatusServiceUnavailable, "no answer &lt;in&gt; time", "Nothing has been seen yet")
		want(t, get(t, h, "/name?name=nightly"), http.StatusServiceUnavailable, "Nothing has been seen yet")
		want(t, get(t, h, "/doctor"), http.StatusServiceUnavailable, "no answer &lt;in&gt; time")

		source.fail(nil)

		source.locks.Locks = []sqllock.Status{held("nightly", "report job")}

		<-time.After(time.Second)
		<-time.After(time.Second)
		want(t, get(t, h, "/doctor"), http.StatusOK)
		want(t, get(t, h, "/"), http.StatusOK, "nightly", "report job")
		want(t, get(t, h, "/name?name=nightly"), http.StatusOK, "report job")
		source.fail(errors.New("connection refused"))
		<-time.After(61 * time.Second)

		for _, path := range []string{"/", "/name?name=nightly"} {
			want(t, get(t, h, path), http.StatusServiceUnavailable,
				"The last look at the database failed: connection refused", "was seen 1m01s ago", `class="stale"`, "report job")
		}

		want(t, get(t, h, "/metrics"), http.StatusOK, "sqllock_database_up 0\n")

		if body := get(t, h, "/metrics").Body.String(); strings.Contains(body, "sqllock_database_holders") {
			t.Errorf("metrics of a database that does not answer:\n%s", body)
		}

		w := get(t, h, "/healthz")
		want(t, w, http.StatusServiceUnavailable, "connection refused\n")

		source.fail(nil)
		<-time.After(time.Second)
		want(t, get(t, h, "/healthz"), http.StatusOK, "ok\n")
	})
}

func TestHealthInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		want(t, get(t, handler(t, &fake{hangs: true}, nil), "/healthz"), http.StatusServiceUnavailable, "deadline exceeded")

		if took := time.Since(begun); took != 2*time.Second {
			t.Errorf("a database without an answer was told of after %s, want 2s", took)
		}
	})
}

// TestHealthOfMany asks the database once a second, however many ask, and for no lock.
func TestHealthOfMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fake{}
		h := handler(t, source, nil)

		for range 3 {
			var probes sync.WaitGroup

			for range 60 {
				probes.Go(func() { want(t, get(t, h, "/healthz"), http.StatusOK) })
			}

			probes.Wait()
			<-time.After(time.Second)
		}

		if source.answers != 3 || source.looks != 0 {
			t.Errorf("the database was asked %d times, and looked at %d times, want 3 and 0", source.answers, source.looks)
		}
	})
}

// TestOneLookForAll counts the looks at the database.
func TestOneLookForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fake{findings: []doctor.Finding{{Level: doctor.Warning, Check: "pool", Found: "a <pool>", Fix: "more:", Statements: []string{"SET a;", "SET b;"}}}}
		h := handler(t, source, nil)

		<-time.After(time.Hour)

		if source.looks > 0 || source.examined > 0 {
			t.Errorf("%d looks while nobody did", source.looks+source.examined)
		}

		for range 10 {
			var browsers sync.WaitGroup

			for _, path := range []string{"/", "/", "/?prefix=b", "/name?name=a", "/metrics"} {
				browsers.Go(func() { get(t, h, path) })
			}

			browsers.Wait()
			want(t, get(t, h, "/doctor"), http.StatusOK, "a &lt;pool&gt;", "Fix:", "<pre>SET a;\nSET b;\n</pre>")
			<-time.After(time.Second)
		}

		if source.looks != 10 || source.examined != 1 {
			t.Errorf("%d looks and %d at the doctor's in ten seconds, want one each second, and one", source.looks, source.examined)
		}
	})
}

// TestWhoWaitsForWhom has all kinds of lines in the tables.
func TestWhoWaitsForWhom(t *testing.T) {
	t.Parallel()

	reader := held("catalog", "reader")
	reader.Shared = true
	permit := held("export", "")
	permit.Slot = 2
	kept := sqllock.Status{Name: "hourly", Taken: time.Minute}
	delayed := sqllock.Status{Name: "delayed", Taken: time.Minute, Owner: "secret-owner"}

	h := handler(t, &fake{locks: page.Locks{
		Locks: []sqllock.Status{reader, reader, reader, permit, held("nightly", "report job"), kept, delayed},
		Waiters: []sqllock.Waiter{
			{Name: "catalog", Place: 1, Holder: sqllock.Holder{Host: "vm", PID: 7}, Holding: []string{"another"}, Waited: time.Hour},
			{Name: "nightly", Place: 1, Holder: sqllock.Holder{Host: "vm", PID: 8, Label: "second"}, Holding: []string{"another"}},
			{Name: "nightly", Place: 2, Holder: sqllock.Holder{Host: "vm", PID: 7, Label: "third"}, Shared: true},
		},
	}}, nil)

	w := get(t, h, "/")
	want(t, w, http.StatusOK, "oldest wait 1h00m", "and 1 more</bdi>", ", 1 before it", ">others<", "released: minimum hold", "expired: lock delay",
		">reader</td>", "pid&nbsp;8")
	// The process that waits for the catalog holds three other names as well.
	want(t, w, http.StatusOK, `data-label="Holds"><div><a href="/name?name=export"><bdi>export</bdi></a>, <a href="/name?name=nightly">`)

	// The last waiter is of that process too, but does not wait under those locks.
	if n := strings.Count(w.Body.String(), `data-label="Holds"`); n != 2 {
		t.Errorf("%d of those who wait hold others, want 2", n)
	}

	if body := get(t, h, "/?prefix=night").Body.String(); strings.Contains(body, "hourly") || !strings.Contains(body, "nightly") {
		t.Errorf("names that begin with night:\n%s", body)
	}

	want(t, get(t, h, "/name?name="), http.StatusBadRequest)
	want(t, get(t, h, "/nothing"), http.StatusNotFound)
}

// While nothing is granted the pages say so, also where nobody holds a lock, and a probe is content.
func TestRecovery(t *testing.T) {
	t.Parallel()

	const said = "nothing is granted for another 20s: <it was promoted>"

	h := handler(t, &fake{locks: page.Locks{Pause: said, Left: 20 * time.Second}}, nil)
	banner := `<p class="banner" role="alert">Recovery pause: ` + html.EscapeString(said)

	want(t, get(t, h, "/"), http.StatusOK, banner)
	want(t, get(t, h, "/name?name=nightly"), http.StatusOK, banner)
	want(t, get(t, h, "/healthz"), http.StatusOK, "ok\n"+said+"\n")
	want(t, get(t, h, "/metrics"), http.StatusOK, "\nsqllock_database_recovery_seconds 20\n")
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	source := &fake{locks: page.Locks{
		Locks:   []sqllock.Status{held("a\"b\\c\nd", ""), held("b", ""), held("b", ""), {Name: "kept", Taken: time.Minute}},
		Waiters: []sqllock.Waiter{{Name: "b", Waited: 1500 * time.Millisecond}, {Name: "b", Waited: time.Second}},
	}}

	w := get(t, handler(t, source, nil), "/metrics")
	want(t, w, http.StatusOK, "# TYPE sqllock_database_up gauge\nsqllock_database_up 1\n", "\nsqllock_database_holders 3\n", "\nsqllock_database_waiters 2\n",
		"\nsqllock_database_oldest_wait_seconds 1.5\n", "\nsqllock_database_recovery_seconds 0\n")

	if strings.Contains(w.Body.String(), "name=") {
		t.Errorf("names without being asked for:\n%s", w.Body)
	}

	w = get(t, handler(t, source, func(c *page.Config) { c.MetricNames = true }), "/metrics")
	want(t, w, http.StatusOK, `sqllock_database_name_holders{name="a\"b\\c\nd"} 1`+"\n", `sqllock_database_name_holders{name="b"} 2`+"\n",
		`sqllock_database_name_holders{name="kept"} 0`+"\n", `sqllock_database_name_waiters{name="b"} 2`+"\n",
		`sqllock_database_name_oldest_wait_seconds{name="b"} 1.5`+"\n")
}
