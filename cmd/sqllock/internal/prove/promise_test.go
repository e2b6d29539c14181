package prove_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/prove"
	"github.com/sqllock/sqllock/sqllocktest"
)

// TestPromisesAreThoseOfThePage compares the promises, and which case is about which, with the table of
// docs/guarantees.md.
func TestPromisesAreThoseOfThePage(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}

	_, table, _ := strings.Cut(string(page), "| promise | conformance suite |")
	table, _, _ = strings.Cut(table, "\n\n")

	var (
		promises []string
		quoted   = regexp.MustCompile("`([^`]+)`")
		of       = prove.PromiseOf
		checks   = prove.Cases("history/")
	)

	for _, row := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(row, "|")
		promise := strings.TrimSpace(strings.ReplaceAll(cells[1], "`", ""))
		promises = append(promises, promise)

		for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if strings.Contains(name[1], "/") && !slices.Contains(sqllocktest.Cases(), name[1]) {
				t.Errorf("the page names a case %q, which is none", name[1])
			}

			if strings.Contains(name[1], "/") && of(name[1]) != promise {
				t.Errorf("the page has %q with the promise %q, and the proof with %q", name[1], promise, of(name[1]))
			}
		}

		// The checks of a history have the names of those of the runs under faults.
		for _, check := range checks {
			if of(check) == promise && !strings.Contains(cells[3], "`"+strings.TrimPrefix(check, "history/")+"`") {
				t.Errorf("the page does not have the check %q with the promise %q", check, promise)
			}
		}
	}

	if got := prove.Promises(); !slices.Equal(got, promises) {
		t.Errorf("the promises of a proof are %q, and those of the page %q", got, promises)
	}
}

// TestEachCaseIsOfAPromise also finds cases that are no more.
func TestEachCaseIsOfAPromise(t *testing.T) {
	t.Parallel()

	all := append(prove.Cases("history/"), sqllocktest.Cases()...)
	if len(all) < 200 {
		t.Fatalf("there are %d cases, want some hundred", len(all))
	}

	for _, name := range all {
		if prove.PromiseOf(name) == "" {
			t.Errorf("the case %q is of no promise", name)
		}
	}

	for _, pattern := range prove.Patterns() {
		if !slices.ContainsFunc(all, func(name string) bool {
			return name == pattern || strings.HasSuffix(pattern, "/") && strings.HasPrefix(name, pattern)
		}) {
			t.Errorf("no case is called %q", pattern)
		}
	}
}
