// Command sqllock runs commands under locks that are kept in a SQL database,
// and brings the tables for that into it.
//
//	sqllock migrate up --dsn postgres://app@db/app
//	sqllock run --name nightly --no-wait -- ./report.sh
//
// See "sqllock help" and "sqllock help exit-codes".
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:]))
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)

	// Results go to stdout; cobra's Print would write to stderr.
	out := &output{file: os.Stdout}
	root.SetOut(out)
	refuseUnknown(root)

	cmd, err := root.ExecuteContextC(ctx)
	code, text := outcome(cmd, out.outdoes(err))

	if text != "" {
		warn(text)
	}

	return code
}
