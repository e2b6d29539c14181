//go:build unix

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
)

// TestScripts runs testdata/script on every database: real processes, each
// script with a database of its own that has sqllock's tables.
func TestScripts(t *testing.T) {
	t.Parallel()

	for _, name := range databaseNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			testscript.Run(t, testscript.Params{
				Dir: filepath.Join("testdata", "script"),
				Setup: func(env *testscript.Env) error {
					tb := env.T().(testing.TB)
					url := migratedOn(tb, name)
					env.Vars = append(env.Vars,
						"DATABASE_URL="+url, "DATABASE="+name,
						"XDG_STATE_HOME="+filepath.Join(env.WorkDir, "state"),
						"GORACE=atexit_sleep_ms=0")
					env.Values[environ{}] = env.Vars

					for file, text := range map[string]string{
						"wrong": withPassword(tb, url, "s3cret"), "silent": silent(tb, url), "refusing": withHost(tb, url, "127.0.0.1:1"),
					} {
						if err := os.WriteFile(filepath.Join(env.WorkDir, file), []byte(text), 0o600); err != nil {
							return err
						}
					}

					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"code":       codeCmd,
					"eventually": eventuallyCmd,
					"free":       freeCmd,
					"page":       pageCmd,
					"sql":        sqlCmd,
					"terminal":   terminalCmd,
				},
				Condition: func(condition string) (bool, error) {
					if condition == "server" {
						return name != "sqlite", nil
					}

					return slices.Contains([]string{"sqlite", "postgres", "mysql", "mariadb"}, condition) && condition == name, nil
				},
			})
		})
	}
}

// environ is the key of a script's environment as it was at the start.
type environ struct{}

// withPassword puts another password into a server's URL.
func withPassword(tb testing.TB, text, password string) string {
	tb.Helper()

	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}

	if u.Scheme == "sqlite" {
		return text
	}

	u.User = url.UserPassword(u.User.Username(), password)

	return u.String()
}

// withHost puts another host into a server's URL.
func withHost(tb testing.TB, text, host string) string {
	tb.Helper()

	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}

	u.Host = host

	return u.String()
}

// silent is the URL of a server that accepts connections and never answers: the
// kernel accepts them, and nobody else does.
func silent(tb testing.TB, text string) string {
	tb.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}

	tb.Cleanup(func() { _ = listener.Close() })

	return withHost(tb, text, listener.Addr().String())
}

// codeCmd runs sqllock and compares its exit code.
func codeCmd(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: code number argument...")
	}

	want, err := strconv.Atoi(args[0])
	ts.Check(err)

	var exit *exec.ExitError

	switch err := ts.Exec("sqllock", args[1:]...); {
	case !errors.As(err, &exit):
		ts.Fatalf("sqllock exited with 0 (%v), want %d", err, want)
	case exit.ExitCode() != want:
		ts.Fatalf("sqllock exited with %d, want %d", exit.ExitCode(), want)
	}
}

// eventuallyCmd runs a command again and again until it succeeds, or fails if
// it is negated.
func eventuallyCmd(ts *testscript.TestScript, negated bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: eventually command [argument...]")
	}

	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)

	defer tick.Stop()

	for (ts.Exec(args[0], args[1:]...) == nil) == negated {
		if time.Now().After(deadline) {
			ts.Fatalf("after %s still not: %s", patience, strings.Join(args, " "))
		}

		<-tick.C
	}
}

// freeCmd frees a lock that sqllock shows, with the flags given.
func freeCmd(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) == 0 {
		ts.Fatalf("usage: free name [flag...]")
	}

	show := []string{"show", args[0]}
	if i := slices.Index(args, "--slot"); i > 0 {
		show = append(show, args[i:i+2]...)
	}

	_ = ts.Exec("sqllock", show...) // It fails if the lock is only taken.

	token := regexp.MustCompile(`(?m)^token +(\d+)$`).FindStringSubmatch(ts.ReadFile("stdout"))
	if token == nil {
		ts.Fatalf("sqllock shows no token of %s", args[0])
	}

	ts.Check(ts.Exec("sqllock", append([]string{"free", "--token", token[1]}, args...)...))
}

// pageCmd asks for a page of "sqllock serve", whose URL is in the file "url", until it has the
// status. The page is the standard output.
func pageCmd(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: page status path [host]")
	}

	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)

	defer tick.Stop()

	for {
		status, body := pageOf(ts, args[1:])
		if strconv.Itoa(status) == args[0] {
			_, err := ts.Stdout().Write(body)
			ts.Check(err)

			return
		}

		if time.Now().After(deadline) {
			ts.Fatalf("%s has status %d, want %s:\n%s", args[1], status, args[0], body)
		}

		<-tick.C
	}
}

// pageOf asks for a path, of a host if that is given.
func pageOf(ts *testscript.TestScript, args []string) (status int, body []byte) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, strings.TrimSuffix(ts.ReadFile("url"), "/\n")+args[0], nil)
	ts.Check(err)

	if len(args) > 1 {
		r.Host = args[1]
	}

	answer, err := http.DefaultClient.Do(r)
	ts.Check(err)

	defer answer.Body.Close()

	body, err = io.ReadAll(answer.Body)
	ts.Check(err)

	return answer.StatusCode, body
}

// sqlCmd runs a statement in the script's database.
func sqlCmd(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: sql statement")
	}

	if err := runSQL(ts.Getenv("DATABASE_URL"), args[0]); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
}

// terminalCmd runs a command on a terminal of so many columns. What it shows is
// the standard output, all of it: testscript's own terminal may lose the end.
func terminalCmd(ts *testscript.TestScript, negated bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: terminal columns command [argument...]")
	}

	columns, err := strconv.ParseUint(args[0], 10, 16)
	ts.Check(err)

	cmd := exec.CommandContext(context.Background(), args[1], args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env, _ = ts.Value(environ{}).([]string)

	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: uint16(columns)})
	ts.Check(err)

	defer terminal.Close()

	// Reading fails when the last process with the terminal is gone.
	_, err = io.Copy(ts.Stdout(), terminal)
	if err != nil && !errors.Is(err, syscall.EIO) {
		ts.Fatalf("read from the terminal: %v", err)
	}

	if err := cmd.Wait(); (err == nil) == negated {
		ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
	}
}

// runSQL runs a statement in the database of a URL.
func runSQL(url, statement string) error {
	target, err := dsn.Parse(url)
	if err != nil {
		return err
	}

	db, err := target.Open(context.Background(), false)
	if err != nil {
		return err
	}
	defer db.Close()

	_, err = db.SQL.ExecContext(context.Background(), statement)

	return err
}
