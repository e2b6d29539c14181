package servers_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/test/servers"
)

func TestNames(t *testing.T) { //nolint:paralleltest // it sets the environment
	for list, want := range map[string][]string{
		"":                          {"postgres", "mysql", "mariadb", "sqlite"},
		"sqlite":                    {"sqlite"},
		" mysql,, sqlite ,mysql":    {"mysql", "sqlite"},
		"postgres,mariadb,postgres": {"postgres", "mariadb"},
	} {
		t.Setenv("SQLLOCK_TEST_DATABASES", list)

		if got := servers.Names(); !slices.Equal(got, want) {
			t.Errorf("Names() with %q = %q, want %q", list, got, want)
		}
	}
}

func TestNormalizeMySQL(t *testing.T) {
	t.Parallel()

	for dsn, want := range map[string]string{
		"u:p@tcp(h:1)/d":                     "u:p@tcp(h:1)/d",
		"u:p@tcp(h:1)/d?parseTime=true":      "u:p@tcp(h:1)/d?parseTime=true",
		"mysql://u:p@h/d":                    "u:p@tcp(h:3306)/d",
		"mysql://u:p%40%2F@h:33/d?tls=false": "u:p@/@tcp(h:33)/d?tls=false",
		"mariadb://u@[::1]:33/d":             "u@tcp([::1]:33)/d",
	} {
		got, err := servers.NormalizeMySQL(dsn)
		if err != nil || got != want {
			t.Errorf("NormalizeMySQL(%q) = %q, %v, want %q, nil", dsn, got, err, want)
		}
	}

	for _, dsn := range []string{"no dsn", "mysql://u:secret@h:port/d", "u:p@tcp(h:1)/d?timeout=never"} {
		got, err := servers.NormalizeMySQL(dsn)
		if err == nil {
			t.Errorf("NormalizeMySQL(%q) = %q, nil, want an error", dsn, got)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("NormalizeMySQL(%q) = %q, which tells the password", dsn, err)
		}
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()

	for text, want := range map[string][2]string{
		"PostgreSQL 17.11 (Debian 17.11-0+deb13u1) on x86_64-pc-linux-gnu": {"PostgreSQL", "17.11"},
		"11.8.6-MariaDB-0+deb13u1 from Debian":                             {"MariaDB", "11.8.6"},
		"9.7.0":                                                            {"MySQL", "9.7.0"},
		"8.0.43-0ubuntu0.24.04.1":                                          {"MySQL", "8.0.43"},
	} {
		if product, version := servers.ParseVersion(text); product != want[0] || version != want[1] {
			t.Errorf("ParseVersion(%q) = %q, %q, want %q", text, product, version, want)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()

	text, gone, otherGone, err := servers.OwnIdentity()
	if err != nil || gone {
		t.Errorf("identity of this process = %q, gone %t, %v, want gone false, nil", text, gone, err)
	}

	if !otherGone {
		t.Errorf("gone of %q with another start time = false, want true", text)
	}

	if servers.GoneElsewhere() {
		t.Error("gone of a process of another machine = true, want false")
	}
}

// fakes are a first way that has only some databases, and a second one that has some of the others.
type fakes struct {
	mutex   sync.Mutex
	stopped []string
}

func (f *fakes) ways() []servers.Fake {
	return []servers.Fake{
		{Name: "one", Stopped: f.stop, Answer: func(database string) (string, error) {
			switch database {
			case "postgres":
				return "dsn from one", nil
			case "mysql":
				return "", errors.New("broken\nin two lines")
			default:
				return "", servers.Absent("not here")
			}
		}},
		{Name: "two", Stopped: f.stop, Answer: func(database string) (string, error) {
			if database == "mariadb" {
				return "", servers.Absent("not there")
			}

			return "dsn from two", nil
		}},
	}
}

func (f *fakes) stop(database string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()

	f.stopped = append(f.stopped, database)
}

func TestStartTakesTheFirstThatWorks(t *testing.T) {
	t.Parallel()

	var (
		log  strings.Builder
		fake fakes
	)

	set, err := servers.StartWith(t.Context(), []string{"postgres", "mysql", "sqlite"}, &log, fake.ways()...)
	if err != nil {
		t.Fatalf("Start = %v, want nil", err)
	}

	want := []string{
		"SQLLOCK_TEST_DATABASES=postgres,mysql,sqlite",
		"SQLLOCK_TEST_MYSQL=dsn from two",
		"SQLLOCK_TEST_POSTGRES=dsn from one",
	}
	if got := set.Environment(); !slices.Equal(got, want) {
		t.Errorf("Environment() = %q, want %q", got, want)
	}

	for _, line := range []string{
		"sqlite    in the test's own process\n",
		"mysql     one failed: broken in two lines\n",
		"mysql     two  ",
		"postgres  one  ",
	} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("log of Start =\n%swant in it %q", log.String(), line)
		}
	}

	if err := set.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}

	slices.Sort(fake.stopped)

	if want := []string{"mysql", "postgres"}; !slices.Equal(fake.stopped, want) {
		t.Errorf("stopped = %q, want %q", fake.stopped, want)
	}
}

func TestStartFailsWhenOneIsMissing(t *testing.T) {
	t.Parallel()

	var fake fakes

	_, err := servers.StartWith(t.Context(), []string{"postgres", "mariadb"}, io.Discard, fake.ways()...)
	if err == nil {
		t.Fatal("Start without a server for mariadb = nil, want an error")
	}

	if strings.Contains(err.Error(), "\n") {
		t.Errorf("Start = %q, want one line", err)
	}

	for _, part := range []string{
		"mariadb: no server", "SQLLOCK_TEST_MARIADB", "mariadb:11.8", "SQLLOCK_TEST_DATABASES",
		"one: not here; two: not there",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Start = %q, want in it %q", err, part)
		}
	}

	if want := []string{"postgres"}; !slices.Equal(fake.stopped, want) {
		t.Errorf("stopped = %q, want %q", fake.stopped, want)
	}
}

func TestStartRefusesUnknownNames(t *testing.T) {
	t.Parallel()

	if _, err := servers.StartWith(t.Context(), []string{"oracle"}, io.Discard); err == nil {
		t.Error("Start(oracle) = nil, want an error")
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")

	fake := servers.Fake{Name: "one", Answer: func(string) (string, error) {
		cancel(cause)

		return "", errors.New("broken")
	}}

	if _, err := servers.StartWith(ctx, []string{"mysql"}, io.Discard, fake); !errors.Is(err, cause) {
		t.Errorf("Start with an ended context = %v, want %v", err, cause)
	}
}

// TestStart takes a real server, whichever way there is one.
func TestStart(t *testing.T) {
	t.Parallel()

	if !slices.Contains(servers.Names(), "postgres") {
		t.Skip("SQLLOCK_TEST_DATABASES leaves out postgres")
	}

	var log strings.Builder

	set, err := servers.Start(t.Context(), []string{"postgres"}, &log)
	if err != nil {
		t.Fatalf("Start(postgres) = %v, want nil", err)
	}

	if !strings.Contains(log.String(), "PostgreSQL ") {
		t.Errorf("log of Start = %q, want the server's version in it", log.String())
	}

	db, err := sql.Open("pgx", set.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	var one int
	if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil || one != 1 {
		t.Errorf("SELECT 1 = %d, %v, want 1, nil", one, err)
	}

	if err := set.Close(); err != nil {
		t.Errorf("Close() = %v, want nil", err)
	}
}

// TestPower crashes and freezes servers of our own.
func TestPower(t *testing.T) {
	t.Parallel()

	drivers := map[string]string{"postgres": "pgx", "mysql": "mysql", "mariadb": "mysql"}
	names := slices.DeleteFunc(servers.Names(), func(name string) bool { return drivers[name] == "" })

	set, err := servers.StartOwn(t.Context(), names, io.Discard)
	if err != nil {
		t.Fatalf("StartOwn(%q) = %v, want nil", names, err)
	}

	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})

	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			// One that was just started may be slow, one that is frozen answers never.
			answers := func(within time.Duration) error {
				db, err := sql.Open(drivers[name], set.DSN(name))
				if err != nil {
					return err
				}
				defer db.Close()

				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()

				return db.PingContext(ctx)
			}

			for _, step := range []struct {
				what    string
				do      func(context.Context, string) error
				answers bool
			}{
				{"Crash", set.Crash, false},
				{"Restart", set.Restart, true},
				{"Freeze", set.Freeze, false},
				{"Thaw", set.Thaw, true},
			} {
				if err := step.do(t.Context(), name); err != nil {
					t.Fatalf("%s(%s) = %v, want nil", step.what, name, err)
				}

				within := time.Second
				if step.answers {
					within = 20 * time.Second
				}

				if err := answers(within); (err == nil) != step.answers {
					t.Errorf("after %s: the server answers = %t (%v), want %t", step.what, err == nil, err, step.answers)
				}
			}
		})
	}

	if err := set.Crash(t.Context(), "sqlite"); err == nil {
		t.Error("Crash(sqlite) = nil, want an error: there is no server")
	}
}

// TestRestartWithoutItsPort takes the port of a server while that is down.
func TestRestartWithoutItsPort(t *testing.T) {
	t.Parallel()

	for name, driver := range map[string]string{"postgres": "pgx", "mysql": "mysql", "mariadb": "mysql"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if !servers.Installed(t.Context(), name) {
				t.Skip("its programs are not on this machine; a container's port is its engine's affair")
			}

			set, err := servers.StartOnThisMachine(t.Context(), []string{name}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := set.Close(); err != nil {
					t.Errorf("Close() = %v, want nil", err)
				}
			})

			before := set.DSN(name)

			if err := set.Crash(t.Context(), name); err != nil {
				t.Fatal(err)
			}

			// The number after the last colon: .../postgres?sslmode=disable, ...)/sqllock.
			port, _, _ := strings.Cut(before[strings.LastIndexByte(before, ':')+1:], "/")
			taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+strings.TrimSuffix(port, ")"))
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()

			if err := set.Restart(t.Context(), name); err != nil {
				t.Fatalf("Restart() = %v, want nil on another port", err)
			}

			db, err := sql.Open(driver, set.DSN(name))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()

			if err := db.PingContext(t.Context()); err != nil {
				t.Errorf("Ping at %s after the restart = %v, want nil; it was at %s", set.DSN(name), err, before)
			}
		})
	}
}

// TestRestartTriesAgain checks what is tried again: a start that fails, and a server that ends before it lets
// clients in, but not one that lets nobody in.
func TestRestartTriesAgain(t *testing.T) {
	t.Parallel()

	taken := errors.New("bind: address already in use")

	for name, c := range map[string]struct {
		starts  []error // what each start says
		readies []error
		ended   error
		want    error
		tries   int
	}{
		"no fault":          {starts: []error{nil}, readies: []error{nil}, tries: 1},
		"a start fails":     {starts: []error{taken, taken, nil}, readies: []error{nil}, tries: 3},
		"the server ends":   {starts: []error{nil, nil}, readies: []error{taken, nil}, ended: taken, tries: 2},
		"no start succeeds": {starts: []error{taken, taken, taken, taken, taken}, want: taken, tries: 5},
		"it lets nobody in": {starts: []error{nil}, readies: []error{taken}, want: taken, tries: 1},
		"it ends every time": {
			starts: make([]error, 5), readies: []error{taken, taken, taken, taken, taken}, ended: taken, want: taken, tries: 5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var started, asked int

			err := servers.StartAgain(t.Context(), servers.FakePower{
				Start: func() (string, error) {
					started++

					return "address", c.starts[started-1]
				},
				Ended: func() error { return c.ended },
			}, func(string) error {
				asked++

				return c.readies[asked-1]
			})
			if !errors.Is(err, c.want) || started != c.tries {
				t.Errorf("starting again = %v after %d tries, want %v after %d", err, started, c.want, c.tries)
			}
		})
	}
}
