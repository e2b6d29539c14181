//go:build unix && !linux

package process

// takeName is not to be had here.
func takeName(string) {}
