package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version(debug.ReadBuildInfo()))

			return err
		},
	}
}

// version is what the Go toolchain wrote into the binary.
func version(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "sqllock, built without version information"
	}

	text := "sqllock " + info.Main.Version
	if info.Main.Version == "" {
		text += "(devel)"
	}

	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += " " + s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " (changed)"
		}
	}

	return text + " " + info.GoVersion
}
