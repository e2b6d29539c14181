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
)

// TestHandover: what one process of examples/handover reserves another one finishes, once.
func TestHandover(t *testing.T) {
	t.Parallel()

	if !slices.Contains(databaseNames(), "postgres") {
		t.Skip("the example needs PostgreSQL, which is left out")
	}

	database, program := migratedOn(t, "postgres"), filepath.Join(t.TempDir(), "handover")

	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/sqllock/sqllock/examples/handover")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}

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

			for range 12 {
				holding := exec.CommandContext(context.WithoutCancel(t.Context()), "sqllock", "hold", "--name", "a", "--no-wait", "--lease", "1h")
				holding.Env = append(holding.Environ(), "DATABASE_URL="+database)

				out, err := holding.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}

				if err := holding.Start(); err != nil {
					t.Fatal(err)
				}

				claim, _ := bufio.NewReader(out).ReadString('\n')
				_ = holding.Process.Signal(syscall.SIGTERM) // it may have ended

				if err := holding.Wait(); err != nil {
					run(t, database, "show", "a").want(exitNotHeld)

					continue
				}

				release := exec.CommandContext(t.Context(), "sqllock", "release")
				release.Env = append(release.Environ(), "DATABASE_URL="+database, claimVariable+"="+claim)

				if said, err := release.CombinedOutput(); err != nil || !strings.HasPrefix(string(said), "released: ") {
					t.Fatalf("hold has exited with 0, and then release: %v\n%s", err, said)
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
