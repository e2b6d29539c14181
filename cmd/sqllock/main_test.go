package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// reexec makes this test binary behave as the command.
const reexec = "SQLLOCK_TEST_REEXEC"

func TestMain(m *testing.M) {
	if os.Getenv(reexec) != "" {
		main()
	}

	os.Exit(m.Run())
}

// patience is how long a test waits for anything.
const patience = 30 * time.Second

// invocation is one start of the command.
type invocation struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout buffer
	stderr buffer
}

// prepare makes an invocation with DATABASE_URL set to the URL given.
func prepare(t *testing.T, url string, args ...string) *invocation {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)

	i := &invocation{t: t, cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	i.cmd.Env = append(os.Environ(), reexec+"=1", "DATABASE_URL="+url,
		"XDG_STATE_HOME="+filepath.Join(t.TempDir(), "state"),
		// The race detector keeps a process for a second after its end.
		"GORACE=atexit_sleep_ms=0")
	i.cmd.Stdout, i.cmd.Stderr = &i.stdout, &i.stderr
	// A process that was left behind must not keep the pipes open for ever.
	i.cmd.WaitDelay = time.Second

	return i
}

// start starts the command.
func start(t *testing.T, url string, args ...string) *invocation {
	t.Helper()

	i := prepare(t, url, args...)
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
func run(t *testing.T, url string, args ...string) *invocation {
	t.Helper()

	i := start(t, url, args...)
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
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()

	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)

	defer tick.Stop()

	for !so() {
		select {
		case <-deadline:
			t.Fatalf("after %s still not: %s", patience, what)
		case <-tick.C:
		}
	}
}

// migrated returns the URL of an SQLite file with sqllock's tables.
func migrated(t *testing.T) string {
	t.Helper()

	url := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	run(t, url, "migrate", "up").want(0)

	return url
}

// sqlite opens the file behind the command's back.
func sqlite(t *testing.T, url string) *sql.DB {
	t.Helper()

	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}
