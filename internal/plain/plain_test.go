package plain_test

import (
	"errors"
	"testing"

	"github.com/sqllock/sqllock/internal/plain"
)

func TestText(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ in, want string }{
		{"nightly", "nightly"},
		{"a b/ü/锁", "a b/ü/锁"},
		{"a\x1b[2Jb\nc", `a\x1b[2Jb\nc`},
		{"\u202eabc", `\u202eabc`},
	} {
		if got := plain.Text(c.in); got != c.want {
			t.Errorf("Text(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ said, want string }{
		{"refused", "refused"},
		{"failed to connect:\n\ta: dial error: refused\n\ta: dial error: refused\n\tb: timeout", "failed to connect: a: dial error: refused; b: timeout"},
		{"not done\r\nlock lost\n", "not done; lock lost"},
	} {
		if got := plain.Line(errors.New(c.said)); got != c.want {
			t.Errorf("Line(%q) = %q, want %q", c.said, got, c.want)
		}
	}
}
