// Package api compares what is exported with what the frozen revision exports.
package api_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"

	"github.com/sqllock/sqllock/test/frozen"
)

// forUsers are the packages of the library that programs use. What sqllock exports is in part that of strategies.
var forUsers = []string{
	"./sqllock", "./strategies", "./election", "./once", "./migrations", "./databases/postgres", "./databases/mysql", "./databases/sqlite", "./databases/tidb",
	"./strategies/cas", "./strategies/insert", "./strategies/forupdate", "./strategies/advisory", "./strategies/quorum",
}

// forAuthors are interfaces of package strategies that may get methods: only authors of strategies implement them.
var forAuthors = regexp.MustCompile(`^(Strategy|Queuer|Placer|Noter|Guarder|Raiser|Recoverer|Tx)\.\w+: added`)

// TestStays: a program that compiles with the frozen revision compiles with this one.
func TestStays(t *testing.T) {
	t.Parallel()

	folder := extracted(t)
	modules := map[string][]string{".": forUsers}

	adapters, err := filepath.Glob(filepath.Join(folder, "adapters", "*", "go.mod"))
	if err != nil || len(adapters) == 0 {
		t.Fatalf("the frozen revision has no adapters: %v", err)
	}

	for _, file := range adapters {
		modules[filepath.Join("adapters", filepath.Base(filepath.Dir(file)))] = []string{"."}
	}

	for module, paths := range modules {
		t.Run(module, func(t *testing.T) {
			t.Parallel()

			before, after := load(t, filepath.Join(folder, module), paths), load(t, filepath.Join("../..", module), paths)

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
		})
	}
}

// TestPublishedMigrationsStay compares those of the frozen revision with ours, byte for byte.
func TestPublishedMigrationsStay(t *testing.T) {
	t.Parallel()

	folder := filepath.Join(extracted(t), "migrations")

	published, err := filepath.Glob(filepath.Join(folder, "*", "*.sql"))
	if err != nil || len(published) == 0 {
		t.Fatalf("the frozen revision has no migrations: %v", err)
	}

	for _, file := range published {
		name, err := filepath.Rel(folder, file)
		if err != nil {
			t.Fatal(err)
		}

		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if after, err := os.ReadFile(filepath.Join("../../migrations", name)); err != nil || !bytes.Equal(before, after) {
			t.Errorf("migrations/%s has changed since it was published (%v): add another one", name, err)
		}
	}
}

// extracted is a folder with the files of the frozen revision.
func extracted(t *testing.T) string {
	t.Helper()

	folder := filepath.Join(t.TempDir(), "frozen")
	if _, err := frozen.Extract(t.Context(), frozen.Commit, folder); err != nil {
		t.Fatal(err)
	}

	return folder
}

// load returns packages of a module by their paths, with what they export.
func load(t *testing.T, module string, paths []string) map[string]*types.Package {
	t.Helper()

	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedTypes,
		Dir:  module, Env: append(os.Environ(), "GOWORK=off"), Context: t.Context(),
	}, paths...)
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
		if !change.Compatible && !forAuthors.MatchString(change.Message) {
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
