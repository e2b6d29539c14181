package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

// The variables that stand in for flags. A flag wins.
const (
	requireVariable  = "SQLLOCK_REQUIRE_DSN"
	strategyVariable = "SQLLOCK_STRATEGY"
	leaseVariable    = "SQLLOCK_LEASE"
)

// required says whether a database has to be named.
func (d *database) required() (bool, error) {
	value := os.Getenv(requireVariable)
	if value == "" || d.given(requireFlag) {
		return d.require, nil
	}

	required, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("%s=%s is neither 1 nor 0", requireVariable, bounded(value))
	}

	return required, nil
}

// fromVariables gives --strategy and --lease the values of their variables,
// unless they are on the command line.
func fromVariables(cmd *cobra.Command, strategyName *string, lease *duration) error {
	if value := os.Getenv(strategyVariable); value != "" && !cmd.Flags().Changed("strategy") {
		if _, err := strategy(value, nil); err != nil {
			return fmt.Errorf("%s: %w", strategyVariable, err)
		}

		*strategyName = value
	}

	value := os.Getenv(leaseVariable)
	if value == "" || cmd.Flags().Changed("lease") {
		return nil
	}

	if err := lease.Set(value); err != nil {
		return fmt.Errorf("%s=%s is %w", leaseVariable, bounded(value), err)
	}

	return nil
}
