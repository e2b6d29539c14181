package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf16"
)

// output is where results go. It remembers that they did not get there, which
// not everything that prints tells of. The first failure is the one that errors wrap:
// cobra goes on to print that of --version, which fails as well.
type output struct {
	file   *os.File
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil && o.failed == nil {
		o.failed = err
	}

	return n, err
}

// Fd is for terminalWidth.
func (o *output) Fd() uintptr { return o.file.Fd() }

// outdoes is how a command ended that returned err: not well if its results
// are missing, and that is no fault of the database or the command line.
func (o *output) outdoes(err error) error {
	if o.failed == nil || err != nil && err.Error() != "" && !errors.Is(err, o.failed) {
		return err
	}

	return exitError{exitInternal, o.failed}
}

// printJSON prints a value in one line. What others wrote may have characters in
// it that turn the direction of the text around, or hide it: they are escaped,
// which is the same to a program.
func printJSON(out io.Writer, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}

	var b bytes.Buffer

	for _, r := range string(encoded) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)

			continue
		}

		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}

	b.WriteByte('\n')

	_, err = out.Write(b.Bytes())

	return err
}

// mapped is what a function makes of each value.
func mapped[A, B any](values []A, of func(A) B) []B {
	made := make([]B, len(values))
	for i, value := range values {
		made[i] = of(value)
	}

	return made
}
