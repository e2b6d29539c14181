package prove

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Proof tries strategies, one after the other.
type Proof struct {
	// Command makes the process that tries a strategy, as Trial does.
	Command func(ctx context.Context, strategy string) *exec.Cmd
	// Cases are the names of those to run.
	Cases []string
	// Tell is called with each case that has ended.
	Tell func(strategy string, o Outcome)
}

// Result is what came out for a strategy.
type Result struct {
	Strategy string `json:"strategy"`
	// Refused says why the strategy was not tried: sqllock, or the server, does not carry it.
	Refused string `json:"refused,omitempty"`
	// Failed says why it does not work at all.
	Failed string `json:"failed,omitempty"`
	// Promises are the verdicts, in the order of Promises, and Cases what they come from.
	Promises []PromiseVerdict `json:"promises,omitempty"`
	Cases    []Outcome        `json:"cases,omitempty"`
}

// PromiseVerdict is the verdict on one promise.
type PromiseVerdict struct {
	Promise string  `json:"promise"`
	Verdict Verdict `json:"verdict"`
	// Ran and Missing are how many of its cases ran, and could not though they concern the strategy.
	Ran     int `json:"ran"`
	Missing int `json:"missing"`
}

// waitDelay is how long the pipes of a process that was killed may stay open.
const waitDelay = 5 * time.Second

// Try runs the cases with a strategy. Cases of which nothing is known, because the process ended before, are not run.
func (p Proof) Try(ctx context.Context, strategy string) (Result, error) {
	result := Result{Strategy: strategy}

	cmd := p.Command(ctx, strategy)
	cmd.WaitDelay = waitDelay

	var complaints bytes.Buffer
	cmd.Stderr = &complaints

	// It ends when this is closed, at the latest by the end of this process.
	alive, err := cmd.StdinPipe()
	if err != nil {
		return result, err
	}
	defer alive.Close()

	said, err := cmd.StdoutPipe()
	if err != nil {
		return result, err
	}

	if err := cmd.Start(); err != nil {
		return result, err
	}

	told := map[string]bool{}

	rest, err := outcomes(said, p.Cases, func(o Outcome) {
		told[o.Case] = true

		result.Cases = append(result.Cases, o)
		p.Tell(strategy, o)
	})

	waited := cmd.Wait()

	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}

	if err != nil {
		return result, err
	}

	for _, name := range p.Cases {
		if !told[name] {
			o := Outcome{Case: name, Promise: promiseOf(name), Verdict: NotRun, Concerns: true, Said: unfinished(waited, complaints.String()+rest)}
			result.Cases = append(result.Cases, o)
			p.Tell(strategy, o)
		}
	}

	result.Promises = Verdicts(result.Cases)

	return result, nil
}

// unfinished says why a process ended without having run a case.
func unfinished(waited error, said string) string {
	text := "the process that runs the cases ended"
	if waited != nil {
		text += ": " + waited.Error()
	}

	// What a crash says, and where.
	const lines = 12

	kept := strings.Split(strings.TrimSpace(said), "\n")

	return strings.TrimSpace(text + "\n" + strings.Join(kept[:min(len(kept), lines)], "\n"))
}

// Verdicts are those on each promise of which there are cases. One is broken if a case is, and kept if a case ran and
// none is broken.
func Verdicts(cases []Outcome) []PromiseVerdict {
	var verdicts []PromiseVerdict

	for _, name := range Promises() {
		v := PromiseVerdict{Promise: name, Verdict: NotRun}
		about := slices.DeleteFunc(slices.Clone(cases), func(o Outcome) bool { return o.Promise != name })

		for _, o := range about {
			switch o.Verdict {
			case Broken:
				v.Verdict = Broken
				v.Ran++
			case Kept:
				v.Ran++

				if v.Verdict == NotRun {
					v.Verdict = Kept
				}
			case NotRun:
				if o.Concerns {
					v.Missing++
				}
			}
		}

		if len(about) > 0 {
			verdicts = append(verdicts, v)
		}
	}

	return verdicts
}
