// Command importergraph shows what a program takes on that imports the library, and fails if it is too much.
//
//	importergraph [path of the repository]
//
// It makes a module outside the workspace that imports the core, one strategy and the PostgreSQL adapter,
// and prints the modules that `go list -m all` finds: a user's go.sum, build and vulnerability scanner see
// all of them, whether or not their code is linked in.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// limit is how many modules there may be, the importer's own included. A new dependency of the root module
// is a decision: CONTRIBUTING.md.
const limit = 20

const program = `package main

import (
	_ "github.com/sqllock/sqllock/databases/postgres"
	_ "github.com/sqllock/sqllock/sqllock"
	_ "github.com/sqllock/sqllock/strategies/cas"
)

func main() {}
`

func main() {
	root := ".."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}

	if err := run(context.Background(), root); err != nil {
		fmt.Fprintln(os.Stderr, "importergraph:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string) (err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return err
	}

	folder, err := os.MkdirTemp("", "sqllock-importer-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	if err := writeImporter(ctx, folder, root); err != nil {
		return err
	}

	all, err := lines(ctx, folder, "list", "-m", "all")
	if err != nil {
		return err
	}

	linked, err := lines(ctx, folder, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	if err != nil {
		return err
	}

	return report(all, linked)
}

func writeImporter(ctx context.Context, folder, root string) error {
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		return err
	}

	for _, args := range [][]string{
		{"mod", "init", "example.com/importer"},
		{"mod", "edit", "-replace=github.com/sqllock/sqllock=" + root},
		{"mod", "tidy"},
		{"build", "-o", os.DevNull, "."},
	} {
		if _, err := lines(ctx, folder, args...); err != nil {
			return err
		}
	}

	return nil
}

// lines runs the go command in folder and returns its output.
func lines(ctx context.Context, folder string, args ...string) ([]string, error) {
	var faults strings.Builder

	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	cmd.Stderr = &faults

	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, faults.String())
	}

	return strings.Split(strings.TrimSpace(string(output)), "\n"), nil
}

// report prints the modules, those that are linked in marked with a star, and says what is wrong with them.
func report(all, linked []string) error {
	isLinked := map[string]bool{}
	for _, path := range linked {
		isLinked[path] = true
	}

	heavy := regexp.MustCompile(`docker|moby|containerd|opentelemetry|goose|testcontainers`)

	var faults []error

	for _, module := range all {
		path, _, _ := strings.Cut(module, " ")
		mark := " "

		if isLinked[path] {
			mark = "*"
		}

		// Without what it is replaced by, which is a path of this machine.
		module, _, _ = strings.Cut(module, " =>")
		fmt.Println(mark, module)

		if heavy.MatchString(path) {
			faults = append(faults, fmt.Errorf("%s must not reach an importer", path))
		}
	}

	fmt.Printf("%d modules in an importer's graph, at most %d allowed; * is linked in\n", len(all), limit)

	if len(all) > limit {
		faults = append(faults, fmt.Errorf("%d modules are more than %d", len(all), limit))
	}

	return errors.Join(faults...)
}
