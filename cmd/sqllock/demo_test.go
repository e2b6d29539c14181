package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDemo(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "dsn")
	url := "sqlite:" + filepath.Join(t.TempDir(), "named.db")

	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	i := run(t, "", "demo", "--lease", "0.8", "--dsn-file", file)
	i.want(0)

	out := i.stdout.String()

	if !strings.Contains(out, url) {
		t.Errorf("the demo does not use %s, which --dsn-file names:\n%s", url, out)
	}

	for _, want := range []string{"SIGKILL", "took over", "hand-overs", "never two at once"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo printed:\n%s\nwant %q in it", out, want)
		}
	}

	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 && !strings.Contains(line, "sqlite:") {
			t.Errorf("a line has %d columns, want at most 80: %s", n, line)
		}
	}
}

func TestDemoUnsupported(t *testing.T) {
	t.Parallel()

	run(t, "", "demo", "--strategy", "advisory").want(exitUsage, "not supported")
}
