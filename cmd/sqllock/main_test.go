package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
)

// reexec makes this test binary behave as the command; so does the name sqllock
// in scripts.
const reexec = "SQLLOCK_TEST_REEXEC"

func TestMain(m *testing.M) {
	if os.Getenv(reexec) != "" {
		main()
	}

	if url := os.Getenv(bare); url != "" {
		fmt.Fprintln(os.Stderr, connectAndBecome(url, os.Args[1:]))
		os.Exit(1)
	}

	testscript.Main(m, map[string]func(){"sqllock": main})
}

// patience is how long a test waits for anything.
const patience = 30 * time.Second

// longest is how long one invocation may take.
const longest = 4 * patience

// invocation is one start of the command.
type invocation struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdout buffer
	stderr buffer
}

// prepare makes an invocation with DATABASE_URL set to the URL given, or not set
// if that is empty.
func prepare(tb testing.TB, url string, args ...string) *invocation {
	tb.Helper()

	ctx, cancel := context.WithTimeout(tb.Context(), longest)
	tb.Cleanup(cancel)

	i := &invocation{t: tb, cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	i.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, dsn.Variable+"=")
	}), reexec+"=1",
		"XDG_STATE_HOME="+filepath.Join(tb.TempDir(), "state"),
		// The race detector keeps a process for a second after its end.
		"GORACE=atexit_sleep_ms=0")
	if url != "" {
		i.cmd.Env = append(i.cmd.Env, dsn.Variable+"="+url)
	}

	i.cmd.Stdout, i.cmd.Stderr = &i.stdout, &i.stderr
	// A process that was left behind must not keep the pipes open for ever.
	i.cmd.WaitDelay = time.Second

	return i
}

// start starts the command.
func start(tb testing.TB, url string, args ...string) *invocation {
	tb.Helper()

	i := prepare(tb, url, args...)
	i.start()

	return i
}

func (i *invocation) start() {
	i.t.Helper()

	if err := i.cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
}

// run starts the command and waits for it.
func run(tb testing.TB, url string, args ...string) *invocation {
	tb.Helper()

	i := start(tb, url, args...)
	i.wait()

	return i
}

// tokenOf is the token of the latest grant of a name.
func tokenOf(tb testing.TB, url, name string) string {
	tb.Helper()

	i := run(tb, url, "show", name, "--json")

	var shown struct {
		Last struct{ Token int64 }
	}

	if err := json.Unmarshal([]byte(i.stdout.String()), &shown); err != nil || shown.Last.Token == 0 {
		tb.Fatalf("show %s --json printed %q (%v), want the token of its last grant", name, i.stdout.String(), err)
	}

	return strconv.FormatInt(shown.Last.Token, 10)
}

// in runs the command with more variables in its environment.
func in(t *testing.T, url string, variables []string, args ...string) *invocation {
	t.Helper()

	i := prepare(t, url, args...)
	i.cmd.Env = append(i.cmd.Env, variables...)
	i.start()
	i.wait()

	return i
}

// wait waits for the command and returns its exit code.
func (i *invocation) wait() int {
	i.t.Helper()

	err := i.cmd.Wait()

	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, exec.ErrWaitDelay) {
		i.t.Fatal(err)
	}

	return i.code()
}

func (i *invocation) code() int { return i.cmd.ProcessState.ExitCode() }

// want fails the test unless the command exited with the code and said all of
// it on stderr.
func (i *invocation) want(code int, said ...string) {
	i.t.Helper()

	if i.code() != code {
		i.t.Errorf("%q exited with %d, want %d; stderr:\n%s", i.cmd.Args[1:], i.code(), code, i.stderr.String())
	}

	for _, text := range said {
		if !strings.Contains(i.stderr.String(), text) {
			i.t.Errorf("%q said on stderr:\n%s\nwant %q in it", i.cmd.Args[1:], i.stderr.String(), text)
		}
	}
}

// buffer is a bytes.Buffer that can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.b.String()
}

// eventually waits for something to be so.
func eventually(tb testing.TB, what string, so func() bool) {
	tb.Helper()

	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)

	defer tick.Stop()

	for !so() {
		select {
		case <-deadline:
			tb.Fatalf("after %s still not: %s", patience, what)
		case <-tick.C:
		}
	}
}

// migrated returns the URL of an SQLite file with sqllock's tables.
func migrated(tb testing.TB) string {
	tb.Helper()

	return migratedOn(tb, "sqlite")
}

// example builds a program of examples/, and returns where it is.
func example(t *testing.T, name string) string {
	t.Helper()

	program := filepath.Join(t.TempDir(), name)

	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/sqllock/sqllock/examples/"+name)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}

	return program
}

// migratedOn returns the URL of a database with sqllock's tables.
func migratedOn(tb testing.TB, name string) string {
	tb.Helper()

	url := freshDatabase(tb, name)
	run(tb, url, "migrate", "up").want(0)

	return url
}

// sqlite opens the file behind the command's back.
func sqlite(tb testing.TB, url string) *sql.DB {
	tb.Helper()

	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		tb.Fatal(err)
	}

	tb.Cleanup(func() { _ = db.Close() })

	return db
}

// withParameter adds a parameter to a URL.
func withParameter(tb testing.TB, text, key, value string) string {
	tb.Helper()

	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}

	query := u.Query()
	query.Set(key, value)
	u.RawQuery = query.Encode()

	return u.String()
}
