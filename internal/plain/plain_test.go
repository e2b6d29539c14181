package plain_test

import (
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
