package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A test writes them because what makes them is in no binary that people install.
var pages = flag.String("pages", "", "write the man pages and completions for a release into this `folder`")

// TestPages makes the man pages and shell completions of a release. There is a page for each command, and man shows it
// without a warning.
func TestPages(t *testing.T) {
	t.Parallel()

	folder := *pages
	if folder == "" {
		folder = t.TempDir()
	}

	writePages(t, filepath.Join(folder, "man"))
	writeCompletions(t, filepath.Join(folder, "completions"))

	var names []string

	root := newRoot()
	root.InitDefaultCompletionCmd()

	each(root, func(cmd *cobra.Command) {
		names = append(names, pageName(cmd)+".1")
	})

	for _, name := range names {
		page, err := os.ReadFile(filepath.Join(folder, "man", name))
		if err != nil {
			t.Fatal(err)
		}

		for _, section := range []string{".TH ", "\n.SH NAME\n", "\n.SH DESCRIPTION\n", "\n.SH SEE ALSO\n"} {
			if !bytes.Contains(page, []byte(section)) {
				t.Errorf("%s has no %q", name, section)
			}
		}
	}

	// A release without them would have passed: go test finds no test of another name, and is content.
	release, err := os.ReadFile(filepath.Join("..", "..", ".goreleaser.yaml"))
	if call := "-C cmd/sqllock -run ^" + t.Name() + "$ . -pages "; err != nil || !bytes.Contains(release, []byte(call)) {
		t.Errorf(".goreleaser.yaml does not call go test %s (%v)", call, err)
	}

	t.Run("man", func(t *testing.T) {
		t.Parallel()
		shown(t, filepath.Join(folder, "man"))
	})
}

// writePages writes a man page for each command.
func writePages(t *testing.T, folder string) {
	t.Helper()

	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}

	root := newRoot()
	root.InitDefaultCompletionCmd() // which Execute adds

	each(root, func(cmd *cobra.Command) {
		if err := os.WriteFile(filepath.Join(folder, pageName(cmd)+".1"), []byte(manPage(t, cmd)), 0o644); err != nil {
			t.Fatal(err)
		}
	})
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the man page of a command, from its help. Not from cobra's generator, which takes the text for Markdown, and
// would add three modules.
func manPage(t *testing.T, cmd *cobra.Command) string {
	t.Helper()

	var b strings.Builder

	fmt.Fprintf(&b, ".TH %q 1 %q sqllock sqllock\n", strings.ToUpper(pageName(cmd)), released(t).Format(time.DateOnly))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))

	if cmd.Runnable() {
		fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fR%s\n", roff(cmd.CommandPath()), roff(strings.TrimPrefix(cmd.UseLine(), cmd.CommandPath())))
	}

	b.WriteString(".SH DESCRIPTION\n")

	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}

	for part := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		// What is indented keeps its lines.
		if strings.HasPrefix(part, " ") || strings.HasPrefix(part, "\t") || strings.Contains(part, "\n  ") {
			fmt.Fprintf(&b, ".PP\n.nf\n%s\n.fi\n", roff(part))
		} else {
			fmt.Fprintf(&b, ".PP\n%s\n", roff(part))
		}
	}

	options(&b, "OPTIONS", cmd.NonInheritedFlags())
	options(&b, "OPTIONS OF THE COMMANDS ABOVE IT", cmd.InheritedFlags())

	if cmd.HasExample() {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(unindent(cmd.Example)))
	}

	var others []string

	if cmd.HasParent() {
		others = append(others, pageName(cmd.Parent()))
	}

	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			others = append(others, pageName(sub))
		}
	}

	fmt.Fprintf(&b, ".SH SEE ALSO\n")

	for i, other := range others {
		fmt.Fprintf(&b, "\\fB%s\\fR(1)%s\n", roff(other), map[bool]string{true: ","}[i < len(others)-1])
	}

	return b.String()
}

// options describes flags, as the help does.
func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}

	fmt.Fprintf(b, ".SH %s\n", title)

	flags.SortFlags = false
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden {
			return
		}

		b.WriteString(".TP\n")

		if flag.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", flag.Shorthand)
		}

		value, usage := pflag.UnquoteUsage(flag)
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(flag.Name))

		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
		}

		if flag.NoOptDefVal != "" && flag.Value.Type() != "bool" {
			fmt.Fprintf(b, "[=%s]", roff(flag.NoOptDefVal))
		}

		fmt.Fprintf(b, "\n%s", roff(usage))

		if !slices.Contains([]string{"", "0", "0s", "false", "[]"}, flag.DefValue) {
			fmt.Fprintf(b, " (default %s)", roff(flag.DefValue))
		}

		b.WriteString("\n")
	})
}

// roff is text that means itself to roff: a line that begins with a dot or an apostrophe would be a request, and a hyphen
// would not be the minus sign that one can copy.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}

	return strings.Join(lines, "\n")
}

// released is the time that reproducible builds are told, and otherwise now.
func released(t *testing.T) time.Time {
	t.Helper()

	given := os.Getenv("SOURCE_DATE_EPOCH")
	if given == "" {
		return time.Now().UTC()
	}

	seconds, err := strconv.ParseInt(given, 10, 64)
	if err != nil {
		t.Fatalf("SOURCE_DATE_EPOCH: %v", err)
	}

	return time.Unix(seconds, 0).UTC()
}

// writeCompletions writes what "sqllock completion" prints, under the names that shells look for.
func writeCompletions(t *testing.T, folder string) {
	t.Helper()

	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}

	for shell, name := range map[string]string{
		"bash": "sqllock", "zsh": "_sqllock", "fish": "sqllock.fish", "powershell": "sqllock.ps1",
	} {
		i := run(t, "", "completion", shell)
		i.want(0)

		script := i.stdout.String()
		if !strings.Contains(script, "__complete") {
			t.Errorf("the completion for %s does not ask sqllock:\n%s", shell, script)
		}

		if err := os.WriteFile(filepath.Join(folder, name), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shown lets man show the pages. Without man-db, whose option for warnings others do not have, there is nothing more to
// check.
func shown(t *testing.T, folder string) {
	t.Helper()

	if version, err := exec.CommandContext(t.Context(), "man", "--version").Output(); err != nil || !bytes.HasPrefix(version, []byte("man ")) {
		t.Skipf("man-db is not installed (Debian's package man-db): no page was shown; %v", err)
	}

	files, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		var out, warnings bytes.Buffer

		man := exec.CommandContext(t.Context(), "man", "--warnings=w", "--encoding=UTF-8", "-l", file)
		man.Env = append(os.Environ(), "MANWIDTH=100", "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MAN_KEEP_FORMATTING=")
		man.Stdout, man.Stderr = &out, &warnings

		if err := man.Run(); err != nil || warnings.Len() > 0 || out.Len() == 0 {
			t.Errorf("man -l %s: %v, %d bytes; warnings:\n%s", filepath.Base(file), err, out.Len(), &warnings)
		}
	}
}
