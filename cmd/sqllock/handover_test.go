//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHandover: what one process of examples/handover reserves another one finishes, once.
func TestHandover(t *testing.T) {
	t.Parallel()

	if !slices.Contains(databaseNames(), "postgres") {
		t.Skip("the example needs PostgreSQL, which is left out")
	}

	database, program := migratedOn(t, "postgres"), example(t, "handover")

	start := func(in string, args ...string) (out, said string, err error) {
		var stdout, stderr bytes.Buffer

		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(cmd.Environ(), "DATABASE_URL="+database)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
		err = cmd.Run()

		return stdout.String(), stderr.String(), err
	}

	claim, said, err := start("", "reserve", "invoice/7")
	if err != nil {
		t.Fatalf("reserve: %v\n%s", err, said)
	}

	if _, said, err := start("", "reserve", "invoice/7"); err == nil || !strings.Contains(said, "detached") {
		t.Errorf("reserve again: %v\n%s", err, said)
	}

	if done, said, err := start(claim, "finish"); err != nil || !strings.HasPrefix(done, "finished invoice/7 with token ") {
		t.Errorf("finish: %v\n%s%s", err, done, said)
	}

	if _, said, err := start(claim, "finish"); err == nil || !strings.Contains(said, "lost") || strings.Contains(said, strings.TrimSpace(claim)) {
		t.Errorf("finish again: %v\n%s", err, said)
	}
}

// TestHoldInterrupted: whoever ends hold as it writes the claim has one that is good, with exit code 0, or nobody has the lock.
func TestHoldInterrupted(t *testing.T) {
	t.Parallel()

	for _, name := range databaseNames() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			database := migratedOn(t, name)

			for try := range 40 {
				holding := prepare(t, database, "hold", "--name", "a", "--no-wait", "--lease", "1h")
				holding.cmd.Stdout = nil

				out, err := holding.cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}

				holding.start()

				claim, _ := bufio.NewReader(out).ReadString('\n')

				<-time.After(time.Duration(try) * 100 * time.Microsecond) // whatever it does by then

				_ = holding.cmd.Process.Signal(syscall.SIGTERM) // it may have ended

				if holding.cmd.Wait() != nil {
					run(t, database, "show", "a").want(exitNotHeld)

					continue
				}

				// hold has exited with 0.
				release := prepare(t, database, "release")
				release.cmd.Env = append(release.cmd.Env, claimVariable+"="+claim)
				release.start()
				release.wait()
				release.want(0)

				if said := release.stdout.String(); !strings.HasPrefix(said, "released: ") {
					t.Fatalf("release says %q", said)
				}
			}
		})
	}
}

// TestRecipes runs docs/recipes.md, the code of each section as one script in a folder of its own.
func TestRecipes(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "recipes.md"))
	if err != nil {
		t.Fatal(err)
	}

	recipes := 0

	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")

		var script strings.Builder
		for _, block := range regexp.MustCompile("(?s)\n```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
			script.WriteString(block[1])
		}

		if script.Len() == 0 {
			continue
		}

		recipes++

		for _, database := range databaseNames() {
			t.Run(title+"/"+database, func(t *testing.T) {
				t.Parallel()
				runRecipe(t, migratedOn(t, database), script.String())
			})
		}
	}

	if recipes < 3 {
		t.Errorf("docs/recipes.md has %d recipes with code, want 3 at least", recipes)
	}
}

// runRecipe runs a recipe twice, as a job would be, in which all that it calls beside sqllock succeeds and says so.
func runRecipe(t *testing.T, database, script string) {
	t.Helper()

	folder := t.TempDir()
	called := filepath.Join(folder, "called")

	for _, name := range regexp.MustCompile(`\./[a-z-]+`).FindAllString(script, -1) {
		stub := "#!/bin/sh\nexec sqllock ls >> " + called + "\n"
		if err := os.WriteFile(filepath.Join(folder, name), []byte(stub), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-e", "-c", script)
		cmd.Dir = folder
		cmd.Env = append(cmd.Environ(), "DATABASE_URL="+database, "HOME="+folder, "USER=somebody")

		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s\n%s", err, output, script)
		}
	}

	seen, err := os.ReadFile(called)
	if err != nil || !strings.Contains(string(seen), "DETACHED") || strings.Contains(string(seen), "no locks") {
		t.Errorf("while the recipe worked, the locks were:\n%s%v", seen, err)
	}

	if listed := run(t, database, "ls"); !strings.Contains(listed.stdout.String(), "no locks are held") {
		t.Errorf("after the recipe there are locks:\n%s", listed.stdout.String())
	}
}
