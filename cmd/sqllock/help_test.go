package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

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

// each calls f for the command and those below it that are shown.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)

	for _, sub := range cmd.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			each(sub, f)
		}
	}
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}

	return strings.Join(lines, "\n")
}
