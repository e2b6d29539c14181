//go:build unix && !linux

package process

// runningProgram is not to be had here.
func runningProgram() string { return "" }
