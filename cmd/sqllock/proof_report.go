package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/prove"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
	"github.com/sqllock/sqllock/internal/plain"
)

// proofReport is what "sqllock doctor --prove" found.
type proofReport struct {
	Target  string `json:"database"`
	Server  string `json:"server"`
	SQLlock string `json:"sqllock"`
	// Untested is why sqllock refuses the server all the same; empty if it does not.
	Untested   string           `json:"untested,omitempty"`
	Place      string           `json:"place,omitempty"`
	Seconds    float64          `json:"seconds"`
	Strategies []strategyReport `json:"strategies"`
}

type strategyReport struct{ prove.Result }

// tried says whether cases are run with the strategy.
func (s strategyReport) tried() bool { return s.Refused == "" && s.Failed == "" }

func ownVersion() string { return strings.TrimPrefix(version(debug.ReadBuildInfo()), "sqllock ") }

func (r proofReport) toTry() []strategyReport {
	return slices.DeleteFunc(slices.Clone(r.Strategies), func(s strategyReport) bool { return !s.tried() })
}

// outcome is the exit code: that of something broken, else of something that could not be tried.
func (r proofReport) outcome() error {
	broken, missing, refused := 0, 0, 0

	for _, s := range r.Strategies {
		if s.Failed != "" {
			broken++
		}

		if s.Refused != "" {
			refused++
		}

		for _, v := range s.Promises {
			if v.Verdict == prove.Broken {
				broken++
			}

			missing += v.Missing
		}
	}

	switch {
	case broken > 0:
		return exitError{exitFailed, nil}
	case missing > 0:
		return exitError{exitNotAcquired, fmt.Errorf("nothing is broken, and %s could not be tried", cases(missing))}
	case refused == len(r.Strategies):
		return exitError{exitUsage, errors.New("there is no strategy to prove on this database")}
	default:
		return nil
	}
}

func (r proofReport) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(out, r)
	}

	width := terminalWidth(out)
	if width == 0 {
		width = helpWidth
	}

	var b strings.Builder

	paragraph(&b, "server   ", r.Server, width)
	paragraph(&b, "sqllock  ", r.SQLlock, width)

	if r.Untested != "" {
		paragraph(&b, "refused  ", r.Untested+"; sqllock goes on to refuse it, unless AllowUntested is used", width)
	}

	b.WriteString("\n")
	r.table(&b, width)

	for _, s := range r.Strategies {
		s.details(&b, width)
	}

	r.last(&b, width)

	_, err := io.WriteString(out, b.String())

	return err
}

// table has a line for each promise and a column for each strategy.
func (r proofReport) table(b *strings.Builder, width int) {
	t := text.Table{Header: []string{"promise"}, Shrink: []int{0}}
	for _, s := range r.Strategies {
		t.Header = append(t.Header, s.Strategy)
	}

	for _, promise := range prove.Promises() {
		row, about := []string{promise}, false

		for _, s := range r.Strategies {
			cell, ok := s.cell(promise)
			about = about || ok
			row = append(row, cell)
		}

		if about {
			t.Rows = append(t.Rows, row)
		}
	}

	for _, line := range t.Lines(width) {
		b.WriteString(line + "\n")
	}
}

// cell is the verdict on a promise, with a star if some of its cases could not be run. It says whether there are any.
func (s strategyReport) cell(promise string) (string, bool) {
	if !s.tried() {
		if s.Failed != "" {
			return string(prove.Broken), false
		}

		return string(prove.NotRun), false
	}

	for _, v := range s.Promises {
		if v.Promise == promise {
			cell := string(v.Verdict)
			if v.Missing > 0 && v.Verdict != prove.NotRun {
				cell += "*"
			}

			return cell, true
		}
	}

	return "", false
}

// details are what is behind the verdicts that are not "kept".
func (s strategyReport) details(b *strings.Builder, width int) {
	heading := func(verdict prove.Verdict, of string) {
		b.WriteString("\n")
		paragraph(b, string(verdict)+" with "+s.Strategy+": ", of, width)
	}

	switch {
	case s.Failed != "":
		heading(prove.Broken, "no lock can be acquired: "+s.Failed)
	case s.Refused != "":
		heading(prove.NotRun, s.Refused)
	}

	for _, v := range s.Promises {
		if v.Verdict == prove.Broken {
			heading(prove.Broken, v.Promise)
			s.list(b, width, func(o prove.Outcome) bool { return o.Promise == v.Promise && o.Verdict == prove.Broken })
		}
	}

	for _, v := range s.Promises {
		if v.Verdict == prove.NotRun || v.Missing > 0 {
			heading(prove.NotRun, v.Promise)
			s.list(b, width, func(o prove.Outcome) bool {
				return o.Promise == v.Promise && o.Verdict == prove.NotRun && (o.Concerns || v.Missing == 0)
			})
		}
	}
}

// list writes cases and what they said. Those that said the same come together.
func (s strategyReport) list(b *strings.Builder, width int, about func(prove.Outcome) bool) {
	var order []string

	names, foreign := map[string][]string{}, map[string]string{}

	for _, o := range s.Cases {
		if !about(o) {
			continue
		}

		if names[o.Said] == nil {
			order = append(order, o.Said)
		}

		names[o.Said] = append(names[o.Said], o.Case)

		if !o.Concerns {
			foreign[o.Said] = o.Said
		}
	}

	for _, said := range order {
		if said, ok := foreign[said]; ok {
			paragraph(b, "  ", "does not apply: "+plain.Text(said), width)

			continue
		}

		for _, name := range names[said] {
			paragraph(b, "  ", name, width)
		}

		for line := range strings.SplitSeq(said, "\n") {
			paragraph(b, "    ", plain.Text(line), width)
		}
	}
}

// last is the sum of it.
func (r proofReport) last(b *strings.Builder, width int) {
	ran, broken, missing := 0, 0, 0

	for _, s := range r.Strategies {
		for _, o := range s.Cases {
			switch {
			case o.Verdict == prove.Broken:
				ran++
				broken++
			case o.Verdict == prove.Kept:
				ran++
			case o.Concerns:
				missing++
			}
		}

		if s.Failed != "" {
			broken++
		}
	}

	said := fmt.Sprintf("%d cases ran in %s: ", ran, text.Duration(time.Duration(r.Seconds*float64(time.Second))))

	switch {
	case broken > 0:
		said += fmt.Sprintf("%d broke a promise. Do not rely on locks of such a strategy here before it is known why; run a case again alone with --case.", broken)
	case ran == 0:
		said += "there is no verdict."
	default:
		said += "all promises that were tried are kept."
	}

	if missing > 0 {
		said += fmt.Sprintf(" %s could not be tried (*).", cases(missing))
	}

	b.WriteString("\n")
	paragraph(b, "", said, width)
}

// cases says how many.
func cases(n int) string {
	if n == 1 {
		return "1 case"
	}

	return fmt.Sprintf("%d cases", n)
}
