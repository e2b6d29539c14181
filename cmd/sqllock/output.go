package main

import (
	"errors"
	"os"
)

// output is where results go. It remembers that they did not get there, which
// not everything that prints tells of.
type output struct {
	file   *os.File
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
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
