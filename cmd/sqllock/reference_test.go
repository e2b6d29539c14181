package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/cli.md instead of comparing it")

// TestReference keeps docs/cli.md what the command says of itself.
func TestReference(t *testing.T) {
	t.Parallel()

	file := filepath.Join("..", "..", "docs", "cli.md")
	want := reference()

	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	if string(got) != want {
		t.Errorf("docs/cli.md is not what the command says; run: make cli-docs")
	}
}

// TestEveryCommandHelps makes sure that there is something in each page.
func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()

	each(newRoot(), func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Runnable() && !cmd.HasExample() && cmd.HasLocalFlags() && cmd.Name() != "status" {
			t.Errorf("%s has no description or no example", cmd.CommandPath())
		}
	})
}

// TestHelpFits makes sure that nothing of it is wider than a terminal.
func TestHelpFits(t *testing.T) {
	t.Parallel()

	each(newRoot(), func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Long + "\n\n" + cmd.UsageString()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth {
				t.Errorf("the help of %s has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	})
}

// reference is docs/cli.md: a section for each command, from its help.
func reference() string {
	var b strings.Builder

	root := newRoot()
	root.InitDefaultCompletionCmd() // which Execute adds

	b.WriteString("# The sqllock command\n\n<!-- Written by `make cli-docs` from the command itself. -->\n")
	fmt.Fprintf(&b, "\n%s\n\n", root.Short)

	each(root, func(cmd *cobra.Command) {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", cmd.CommandPath(), anchor(cmd), cmd.Short)
	})

	each(root, func(cmd *cobra.Command) { section(&b, cmd) })

	return b.String()
}

// each calls f for the command and those below it that are shown.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)

	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			each(sub, f)
		}
	}
}

func anchor(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func section(b *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n", cmd.CommandPath())

	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}

	if cmd.Runnable() {
		fmt.Fprintf(b, "    %s\n\n", cmd.UseLine())
	}

	// As it stands in the terminal: the help's own line breaks and tables.
	fmt.Fprintf(b, "```\n%s\n```\n", strings.TrimSpace(long))

	if cmd.HasExample() {
		fmt.Fprintf(b, "\nExamples:\n\n```sh\n%s\n```\n", unindent(cmd.Example))
	}

	flags(b, "Flags", cmd.NonInheritedFlags())
	flags(b, "Flags of the commands above it", cmd.InheritedFlags())
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}

	return strings.Join(lines, "\n")
}

func flags(b *strings.Builder, title string, set *pflag.FlagSet) {
	set.SortFlags = false

	if usages := set.FlagUsagesWrapped(helpWidth); usages != "" {
		fmt.Fprintf(b, "\n%s:\n\n```\n%s```\n", title, usages)
	}
}
