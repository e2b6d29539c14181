package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// around is what the pieces of code in README.md are used with.
const around = `package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/election"
	"github.com/sqllock/sqllock/once"
	"github.com/sqllock/sqllock/sqllock"
)

var (
	ctx      context.Context
	pool     *pgxpool.Pool
	locker   *sqllock.Locker
	fireTime time.Time
)

func work(context.Context, *sqllock.Lock) error { return nil }

var edit, report, transfer, schedule = work, work, work, work

func export(context.Context, int) error { return nil }

var (
	_ = errors.Is
	_ = pgx.BeginFunc
	_ = postgres.Tx
	_ = election.New
	_ = once.Do
)

func main() {}
`

// TestReadme compiles the Go code of README.md: its program, and each piece in a function of its own.
func TestReadme(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	pieces, programs := around, 0

	for i, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(block[1], "package main\n") {
			programs++

			vet(t, "program.go", block[1])

			continue
		}

		code := strings.ReplaceAll(block[1], "\n...\n", "\nif err != nil {\nreturn err\n}\n")

		// What a piece defines is used, and err is there.
		pieces += fmt.Sprintf("\nfunc piece%d() (err error) {\n%s\nreturn err\n}\n", i, code)
	}

	for _, call := range regexp.MustCompile("`((?:locker|once)\\.[^`]*\\)\\))`").FindAllStringSubmatch(string(text), -1) {
		pieces += fmt.Sprintf("\nvar _ = func() error { return %s }\n", call[1])
	}

	vet(t, "pieces.go", pieces)

	if programs != 1 {
		t.Errorf("README.md has %d programs, want 1", programs)
	}
}

// vet compiles a program of this module.
func vet(t *testing.T, name, code string) {
	t.Helper()

	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}

	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%s of README.md: %v\n%s\n%s", name, err, out, code)
	}
}
