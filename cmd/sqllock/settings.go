package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// The variables that stand in for flags. A flag wins.
const (
	requireVariable  = "SQLLOCK_REQUIRE_DSN"
	strategyVariable = "SQLLOCK_STRATEGY"
	leaseVariable    = "SQLLOCK_LEASE"
)

// fromVariables gives --strategy and --lease the values of their variables,
// unless they are on the command line.
func fromVariables(cmd *cobra.Command, strategyName *string, lease *duration) error {
	if value := os.Getenv(strategyVariable); value != "" && !cmd.Flags().Changed("strategy") {
		if _, err := strategy(value, nil); err != nil {
			return fmt.Errorf("%s: %w", strategyVariable, err)
		}

		*strategyName = value
	}

	if value := os.Getenv(leaseVariable); value != "" && !cmd.Flags().Changed("lease") {
		if err := lease.Set(value); err != nil {
			return fmt.Errorf("%s=%s is %w", leaseVariable, bounded(value), err)
		}
	}

	return nil
}
