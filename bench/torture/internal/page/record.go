// Package page writes the page of a run, and the picture beside it.
package page

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// Record is what came of a run.
type Record struct {
	Began time.Time
	Took  time.Duration
	// Machine is what package report says of it.
	Machine string
	// Lease is that of all locks that have one.
	Lease time.Duration
	// Repeats is how often each lock went through each fault.
	Repeats  int
	Versions []Version // of the servers
	// Modules are the versions of the libraries, by module.
	Modules map[string]string
	Locks   []Row
	Cells   []judge.Cell
}

// Version is that of a server or a module.
type Version struct{ Name, Version string }

// Row is a lock as the page tells of it. Its fields are those of Lock in package locks.
type Row struct {
	Name, Server    string
	Ours            bool
	Settings        string
	Module, Version string `json:",omitempty"`
	Promise, Source string `json:",omitempty"`
	Token           string `json:",omitempty"`
	Smallest        string `json:",omitempty"`
}

// ID names it among all, as [judge.Cell] has it.
func (r Row) ID() string { return r.Server + "/" + r.Name }

// Read reads a record from a file.
func Read(file string) (Record, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Record{}, err
	}

	var r Record

	if err := json.Unmarshal(text, &r); err != nil {
		return Record{}, fmt.Errorf("%s: %w", file, err)
	}

	return r, nil
}

// Write writes a record to a file.
func Write(file string, r Record) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}

	return os.WriteFile(file, append(text, '\n'), 0o644)
}
