package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/prove"
	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
)

// proving says how far a proof is: on a terminal in one line that changes, otherwise in a line for each promise.
type proving struct {
	total    int
	begun    time.Time
	terminal bool
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu           sync.Mutex
	strategy     string
	done, broken int
	cases        []string
	outcomes     map[string][]prove.Outcome // of each strategy
}

// newProving is for a proof of so many strategies.
func newProving(cases []string, strategies int) *proving {
	p := &proving{
		total: len(cases) * strategies, begun: time.Now(), terminal: term.IsTerminal(int(os.Stderr.Fd())),
		stop: make(chan struct{}), cases: cases, outcomes: map[string][]prove.Outcome{},
	}

	if p.terminal && p.total > 0 {
		p.stopped.Go(func() {
			p.draw()

			const often = 250 * time.Millisecond

			for tick := time.NewTicker(often); ; {
				select {
				case <-p.stop:
					tick.Stop()

					return
				case <-tick.C:
					p.draw()
				}
			}
		})
	}

	return p
}

// ended is called with each case that has ended.
func (p *proving) ended(strategy string, o prove.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.strategy = strategy
	p.done++

	if o.Verdict == prove.Broken {
		p.broken++
	}

	p.outcomes[strategy] = append(p.outcomes[strategy], o)

	if !p.terminal {
		p.line(strategy, o.Promise)
	}
}

// line says what came out for a promise, once all of its cases have ended.
func (p *proving) line(strategy, promise string) {
	if left := prove.Left(p.cases, p.outcomes[strategy], promise); left > 0 {
		return
	}

	for _, v := range prove.Verdicts(p.outcomes[strategy]) {
		if v.Promise == promise {
			_, _ = fmt.Fprintf(os.Stderr, "sqllock: %s: %s: %s%s\n", strategy, promise, v.Verdict, p.culprits(strategy, promise))
		}
	}
}

// culprits are the cases that broke a promise: whoever ends the proof early has no report.
func (p *proving) culprits(strategy, promise string) string {
	var names []string

	for _, o := range p.outcomes[strategy] {
		if o.Promise == promise && o.Verdict == prove.Broken {
			names = append(names, o.Case)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return " (" + strings.Join(names, ", ") + ")"
}

const (
	// leastBar and mostBar are the columns of the bar.
	leastBar = 8
	mostBar  = 30
)

// draw writes the line anew.
func (p *proving) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()

	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width <= 0 {
		width = helpWidth
	}

	// The last column is left free, as in progressLine.
	_, _ = fmt.Fprint(os.Stderr, clearLine+p.bar(width-1, time.Since(p.begun)))
}

// bar is how far it is, in so many columns.
func (p *proving) bar(width int, since time.Duration) string {
	said := fmt.Sprintf(" %d of %d cases, %s", p.done, p.total, text.Duration(since.Truncate(time.Second)))

	if p.broken > 0 {
		said += fmt.Sprintf(", %d BROKEN", p.broken)
	}

	if p.strategy != "" {
		said += ", " + p.strategy
	}

	columns := min(width-text.Width(said)-2, mostBar)
	if columns < leastBar {
		return text.Fit(strings.TrimSpace(said), width)
	}

	full := columns * p.done / max(p.total, 1)

	return "[" + strings.Repeat("#", full) + strings.Repeat(".", columns-full) + "]" + said
}

// end clears the line.
func (p *proving) end() {
	close(p.stop)
	p.stopped.Wait()

	if p.terminal && p.total > 0 {
		_, _ = fmt.Fprint(os.Stderr, clearLine)
	}
}
