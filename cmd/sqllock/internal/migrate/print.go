package migrate

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/migrations"
)

// Print writes the SQL of a dialect as it is applied, for those who migrate by
// other means. With down it writes what undoes it, newest first.
func Print(out io.Writer, dialect string, down bool) error {
	files, err := migrations.For(dialect)
	if err != nil {
		return err
	}

	return PrintFiles(out, dialect, files, down)
}

// PrintFiles writes the SQL of some migrations, which are of something.
func PrintFiles(out io.Writer, of string, files fs.FS, down bool) error {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return err
	}

	if down {
		slices.Reverse(names)
	}

	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}

		if _, err := fmt.Fprintf(out, "-- %s (%s)\n\n%s\n", name, of, section(string(text), down)); err != nil {
			return err
		}
	}

	return nil
}

// section takes one direction out of a file in goose's format, without goose's
// own comments.
func section(text string, down bool) string {
	var b strings.Builder

	on := false

	for line := range strings.Lines(text) {
		switch directive := strings.TrimSpace(line); {
		case strings.HasPrefix(directive, "-- +goose Up"):
			on = !down
		case strings.HasPrefix(directive, "-- +goose Down"):
			on = down
		case strings.HasPrefix(directive, "-- +goose"):
		case on:
			b.WriteString(line)
		}
	}

	return strings.TrimSpace(b.String()) + "\n"
}
