package main

import (
	"cmp"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { cmd.Println(version(debug.ReadBuildInfo())) },
	}
}

// version is what the Go toolchain wrote into the binary, with the commit if that has no tag.
func version(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "sqllock, built without version information"
	}

	return "sqllock " + cmp.Or(info.Main.Version, "(devel)") + " " + info.GoVersion
}
