// Package api compares what is exported with what the frozen revision exports.
package api_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"

	"github.com/sqllock/sqllock/test/frozen"
)

// forUsers are the packages that programs use. Those for authors of strategies may get methods that authors have to write.
var forUsers = []string{
	"./sqllock", "./election", "./once", "./migrations", "./databases/postgres", "./databases/mysql", "./databases/sqlite", "./databases/tidb",
	"./strategies/cas", "./strategies/insert", "./strategies/forupdate", "./strategies/advisory", "./strategies/quorum",
}

// TestStays: a program that compiles with the frozen revision compiles with this one.
func TestStays(t *testing.T) {
	t.Parallel()

	folder := filepath.Join(t.TempDir(), "frozen")
	if _, err := frozen.Extract(t.Context(), frozen.Commit, folder); err != nil {
		t.Fatal(err)
	}

	before, after := load(t, folder), load(t, "../..")

	for path, old := range before {
		current := after[path]
		if current == nil {
			t.Errorf("package %s is gone", path)

			continue
		}

		for _, broken := range breaking(old, current) {
			t.Errorf("%s: %s", path, broken)
		}
	}
}

// load returns the packages for users in a folder by their paths, with what they export.
func load(t *testing.T, folder string) map[string]*types.Package {
	t.Helper()

	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps,
		Dir:  folder, Env: append(os.Environ(), "GOWORK=off"), Context: t.Context(),
	}, forUsers...)
	if err != nil {
		t.Fatal(err)
	}

	found := make(map[string]*types.Package)

	for _, p := range loaded {
		if len(p.Errors) > 0 {
			t.Fatal(p.Errors[0])
		}

		found[p.PkgPath] = p.Types
	}

	return found
}

// breaking are the changes that break programs.
func breaking(before, after *types.Package) (changes []string) {
	for _, change := range apidiff.Changes(before, after).Changes {
		if !change.Compatible {
			changes = append(changes, change.Message)
		}
	}

	return changes
}

// TestBreaks: the comparison tells what breaks a program from what does not.
func TestBreaks(t *testing.T) {
	t.Parallel()

	before := `package p; type Options struct { Wait int }; func Acquire(name string) {}`

	for after, want := range map[string]string{
		`package p; type Options struct { Wait, Lease int }; func Acquire(name string) {}; func Release() {}`: "",
		`package p; type Options struct { Wait int }; func Acquire(name string, wait int) {}`:                 "Acquire",
		`package p; type Options struct { Wait string }; func Acquire(name string) {}`:                        "Options.Wait",
		`package p; type Options struct { Wait int }`:                                                         "Acquire",
	} {
		said := strings.Join(breaking(checked(t, before), checked(t, after)), "\n")
		if (said != "") != (want != "") || !strings.Contains(said, want) {
			t.Errorf("changed to %q: %q, want it to tell of %q", after, said, want)
		}
	}
}

func checked(t *testing.T, source string) *types.Package {
	t.Helper()

	files := token.NewFileSet()

	file, err := parser.ParseFile(files, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}

	checked, err := new(types.Config).Check("p", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}

	return checked
}
