package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// FuzzArguments checks that no command line makes the command panic, that it ends
// with a code that is documented, and that an error is one line.
//
// Nothing is run and no database is opened: of the commands that would, "run" is
// given a program and a database that do not exist, and the others stop when their
// arguments were read.
func FuzzArguments(f *testing.F) {
	for _, line := range []string{
		"", "help", "--help", "version", "exit-codes", "bogus", "-", "--", "completion bash", "help run", "run -h",
		"migrate", "migrate up --bogus", "migrate sideways", "migrate print --dialect oracle", "migrate print --dialect mysql",
		"migrate down --all=maybe", "run", "run true", "run --name a true", "run --name a --wait 1s --no-wait -- true",
		"run --name a --wait -1s true", "run --name a --grace 20s true", "run --name a --conflict-exit-code 300 true",
		"run --name a --strategy magic true", "run --name a --lease 1us true", "run --name a --lease 9223372036854775807ns true",
		"run --name=\xff\x00 -v -- rm -rf /", "run --dsn oracle://app:pw@db/app --name a true", "run --lease 1e9h --name a -n true",
		"watch-group", "run --name a\nb true", "run --label \r\n --name a true", "run --name -n true",
	} {
		f.Add(strings.ReplaceAll(line, " ", "\x1f"))
	}

	f.Fuzz(func(t *testing.T, line string) {
		// A byte that no argument needs keeps them apart.
		args := strings.Split(line, "\x1f")
		if strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
			return // completions may ask the database
		}

		var stderr bytes.Buffer

		root := newRoot()
		root.SetOut(io.Discard)
		root.SetErr(&stderr)
		root.SetArgs(args)
		disarm(t, root)

		code, text := outcome(root.ExecuteContextC(context.Background()))

		if !strings.Contains(exitCodes, " "+strconv.Itoa(code)+" ") && code != 0 {
			t.Errorf("%q exits with %d, which exit-codes does not have", args, code)
		}

		if strings.ContainsAny(text, "\n\r") || (text == "") != (code == 0) || stderr.Len() > 0 {
			t.Errorf("%q exits with %d and says %q %q, want one line", args, code, text, &stderr)
		}
	})
}

// disarm keeps every command from acting, but those that only print.
func disarm(t *testing.T, cmd *cobra.Command) {
	t.Helper()

	act := cmd.RunE

	switch cmd.CommandPath() {
	case "sqllock", "sqllock version", "sqllock exit-codes", "sqllock migrate", "sqllock migrate print":
	case "sqllock run":
		nowhere := filepath.Join(t.TempDir(), "nothing", "here")

		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := cmd.Flags().Set("dsn", "sqlite:"+nowhere); err != nil {
				t.Fatal(err)
			}

			return act(cmd, append([]string{nowhere}, args[1:]...))
		}
	default:
		cmd.Run, cmd.RunE = nil, func(*cobra.Command, []string) error { return nil }
	}

	for _, sub := range cmd.Commands() {
		disarm(t, sub)
	}
}
