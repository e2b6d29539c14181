package sqllock

import (
	"testing"
	"time"
)

func TestInstantSince(t *testing.T) {
	t.Parallel()

	start := instant{mono: time.Hour, wall: 100 * time.Hour}

	for _, test := range []struct {
		name       string
		mono, wall time.Duration
		want       time.Duration
	}{
		{"both clocks agree", time.Minute, time.Minute, time.Minute},
		{"the machine slept: only the wall clock went on", time.Second, 8 * time.Hour, 8 * time.Hour},
		{"the wall clock was set forward", time.Second, time.Hour, time.Hour},
		{"the wall clock was set back", time.Minute, -time.Hour, time.Minute},
		{"no time passed", 0, 0, 0},
	} {
		end := instant{mono: start.mono + test.mono, wall: start.wall + test.wall}

		if got := end.since(start); got != test.want {
			t.Errorf("%s: since() = %s, want %s", test.name, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()

	const lowest, highest = 20 * time.Millisecond, time.Second

	for attempt := range 200 {
		bound := highest
		if attempt < 6 {
			bound = min(lowest<<attempt, highest)
		}

		for range 50 {
			if got := backoff(attempt, lowest, highest); got < bound/2 || got > bound {
				t.Fatalf("backoff(%d, %s, %s) = %s, want between %s and %s", attempt, lowest, highest, got, bound/2, bound)
			}
		}
	}

	// A shift that overflows is no short pause.
	if got := backoff(29, 100*time.Hour, 200*time.Hour); got < 100*time.Hour {
		t.Errorf("backoff(29, 100h, 200h) = %s, want at least 100h", got)
	}

	for _, d := range []time.Duration{0, 1} {
		if got := jitter(d); got != d {
			t.Errorf("jitter(%d) = %d, want %d", d, got, d)
		}
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()

	long := make([]byte, MaxNameLength)
	for i := range long {
		long[i] = 'x'
	}

	for name, valid := range map[string]bool{
		"": false, "x": true, " ": true, "🔒": true, "a\x00b": false, "\xff": false,
		string(long): true, string(long) + "x": false,
	} {
		if err := checkName(name); (err == nil) != valid {
			t.Errorf("checkName(%q) = %v, want valid: %t", name, err, valid)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"a🔒", 4, "a"}, {"a🔒", 5, "a🔒"}, {"🔒", 3, ""}, {"", 0, ""},
	} {
		if got := cut(test.text, test.n); got != test.want {
			t.Errorf("cut(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

func TestTrust(t *testing.T) {
	t.Parallel()

	if got, want := defaults().trust(30*time.Second), 29690*time.Millisecond; got != want {
		t.Errorf("trust(30s) = %s, want %s", got, want)
	}
}
