package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/strategies/forupdate"
	"github.com/sqllock/sqllock/strategies/insert"
)

// strategyFlag adds --strategy.
func strategyFlag(cmd *cobra.Command, name *string, usage string) {
	cmd.Flags().StringVar(name, "strategy", "cas", usage)
	offer(cmd, "strategy", "cas", "insert", "forupdate", "advisory")
}

// offer makes shells complete the values of a flag, and no files.
func offer(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}

func strategy(name string, db databases.DB) (strategies.Strategy, error) {
	switch name {
	case "cas":
		return cas.New(db), nil
	case "insert":
		return insert.New(db), nil
	case "forupdate":
		return forupdate.New(db), nil
	case "advisory":
		return advisory.New(db), nil
	default:
		return nil, exitError{exitUsage, fmt.Errorf("no strategy %q; there are cas, insert, forupdate and advisory", name)}
	}
}
