//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestService: two replicas of examples/service take orders, are ready and count, and leave nothing when they are told to end.
func TestService(t *testing.T) {
	t.Parallel()

	if !slices.Contains(databaseNames(), "postgres") {
		t.Skip("the service needs PostgreSQL, which is left out")
	}

	database, program := migratedOn(t, "postgres"), example(t, "service")

	first, second := startService(t, program, database), startService(t, program, database)

	first.wants(t, http.MethodPost, "/customers/7/orders", "order 1\n")
	second.wants(t, http.MethodPost, "/customers/7/orders", "order 2\n")
	second.wants(t, http.MethodPost, "/customers/8/orders", "order 1\n")
	first.wants(t, http.MethodGet, "/readyz", "")
	first.wants(t, http.MethodGet, "/debug/vars", `"acquired": `)

	first.end(t)
	second.wants(t, http.MethodPost, "/customers/7/orders", "order 3\n")
	second.end(t)

	listed := run(t, database, "ls")
	listed.want(0)

	if !strings.Contains(listed.stdout.String(), "no locks are held") {
		t.Errorf("both have ended, and hold:\n%s", listed.stdout.String())
	}
}

// replica is a process of the service.
type replica struct {
	cmd     *exec.Cmd
	address string
}

func startService(t *testing.T, program, database string) *replica {
	t.Helper()

	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-listen", "localhost:0")
	cmd.Env = append(cmd.Environ(), "DATABASE_URL="+database)

	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = cmd.Process.Kill() })

	lines := bufio.NewScanner(said)
	serving := regexp.MustCompile(`serving address=(\S+)`)

	for lines.Scan() {
		if found := serving.FindStringSubmatch(lines.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, said) }()

			return &replica{cmd, found[1]}
		}

		t.Log(lines.Text())
	}

	t.Fatalf("the service has ended: %v", cmd.Wait())

	return nil
}

// wants fails unless the answer begins with, or contains, what is wanted.
func (r *replica) wants(t *testing.T, method, path, want string) {
	t.Helper()

	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.address+path, nil)
	if err != nil {
		t.Fatal(err)
	}

	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()

	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
		t.Errorf("%s %s = %s, %q, %v, want %q", method, path, answer.Status, body, err, want)
	}
}

// end sends SIGTERM, and waits for the process.
func (r *replica) end(t *testing.T) {
	t.Helper()

	const most = 10 * time.Second // a lease is longer

	began := time.Now()

	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if err := r.cmd.Wait(); err != nil || time.Since(began) > most {
		t.Errorf("after SIGTERM the service ended with %v in %s, want nil, and less than %s", err, time.Since(began), most)
	}
}
