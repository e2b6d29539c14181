package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sqllock/sqllock/internal/plain"
	"github.com/sqllock/sqllock/sqllock"
)

// TestJSONHasNothingHidden prints what turns a text around, or is not seen.
func TestJSONHasNothingHidden(t *testing.T) {
	t.Parallel()

	const name = "a\u202eb\u2066c\u200bd\ufeffe\u007ff\u0085g\U000e0041h ü 锁 😀 \x1b <\n"

	var b bytes.Buffer

	if err := printJSON(&b, map[string]string{"name": name}); err != nil {
		t.Fatal(err)
	}

	want := `{"name":"a\u202eb\u2066c\u200bd\ufeffe\u007ff\u0085g\udb40\udc41h ü 锁 😀 \u001b \u003c\n"}` + "\n"
	if b.String() != want {
		t.Errorf("printJSON() = %s, want %s", b.String(), want)
	}

	var read map[string]string
	if err := json.Unmarshal(b.Bytes(), &read); err != nil || read["name"] != name {
		t.Errorf("what was printed is read as %q (%v), want %q", read["name"], err, name)
	}
}

// TestJSONHasMicroseconds has times that a sum of seconds and a fraction does not hit.
func TestJSONHasMicroseconds(t *testing.T) {
	t.Parallel()

	const d = 1862351 * time.Microsecond

	var b bytes.Buffer

	if err := printJSON(&b, jsonOf(sqllock.Status{HeldFor: d + 400, Remaining: d, Taken: d})); err != nil {
		t.Fatal(err)
	}

	if want := `"held_seconds":1.862351,"remaining_seconds":1.862351,"taken_seconds":1.862351,"shared":false,"detached":false}`; !strings.Contains(b.String(), want) {
		t.Errorf("a lock is printed as %s, want %s", b.String(), want)
	}
}

// TestCommandsPrintNothingHidden asks for a lock whose name turns the text around.
func TestCommandsPrintNothingHidden(t *testing.T) {
	t.Parallel()

	url := migrated(t)
	self := prepare(t, url).cmd.Path

	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"show", "a\u202eb"}, {"show", "--json", "a\u202eb"}} {
		i := run(t, url, append([]string{"run", "--name", "a\u202eb", "--label", "a\u202eb", "--", self}, args...)...)
		i.want(0)

		if got := i.stdout.String(); strings.Contains(got, "\u202e") || strings.Count(got, `a\u202eb`) < 2 {
			t.Errorf("%q printed %q, want the character escaped", args, got)
		}
	}
}

// TestShowPrintsNoControlCharacters of what others wrote into the tables.
func TestShowPrintsNoControlCharacters(t *testing.T) {
	t.Parallel()

	const hostile = "a\x1b[2J\nb\u007f"

	holder := sqllock.Holder{Host: hostile, PID: 1, Label: hostile, Metadata: hostile}

	for _, status := range []sqllock.Status{
		{Name: hostile, Owner: hostile, Strategy: hostile, Holder: holder, Token: 1, Remaining: time.Minute, Guarded: true},
		{Name: hostile, Strategy: hostile, Holder: holder, Token: 1, Taken: time.Minute, Ended: hostile, Detail: hostile},
	} {
		second := status
		second.Slot = 1

		for _, listed := range [][]sqllock.Status{{status}, {status, second}} {
			var b bytes.Buffer

			s := seen{status: status, listed: listed, waiters: []sqllock.Waiter{{Name: hostile, Holder: holder}}}
			if err := s.print(&b); err != nil {
				t.Fatal(err)
			}

			for line := range strings.Lines(b.String()) {
				if line = strings.TrimSuffix(line, "\n"); plain.Text(line) != line || strings.HasPrefix(line, "b") {
					t.Errorf("show prints %q", line)
				}
			}
		}
	}
}

// TestLogHasNoControlCharacters in a line of run -v.
func TestLogHasNoControlCharacters(t *testing.T) {
	t.Parallel()

	i := run(t, migrated(t), "run", "-v", "--name", "n\u007fx", "--", "true")
	i.want(0, `n\x7fx`)

	for line := range strings.Lines(i.stderr.String()) {
		if line = strings.TrimSuffix(line, "\n"); plain.Text(line) != line {
			t.Errorf("run -v prints %q", line)
		}
	}
}

// TestTraceOfALongReason must not look at the reason once for each of its
// characters.
func TestTraceOfALongReason(t *testing.T) { //nolint:paralleltest // AllocsPerRun wants it so
	reason := strings.Repeat("ü", 5000)

	var traced string

	if allocs := testing.AllocsPerRun(1, func() { traced = trace(reason) }); allocs > 500 {
		t.Errorf("a reason of %d bytes took %.0f allocations", len(reason), allocs)
	}

	if len(traced) > traceRoom || !utf8.ValidString(traced) || !strings.HasPrefix(traced, "üü") || !strings.Contains(traced, "ü (by ") {
		t.Errorf("trace() = %q", traced)
	}

	if got := trace("ticket 4711"); !strings.HasPrefix(got, "ticket 4711 (by ") {
		t.Errorf("trace() = %q", got)
	}
}
