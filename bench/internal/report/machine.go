package report

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Machine says on what the figures were measured.
func Machine() string {
	var out strings.Builder

	fmt.Fprintf(&out, "%d × %s, %s, %s, %s/%s, %s", runtime.NumCPU(), fileField("/proc/cpuinfo", "model name", "unknown processor"),
		memory(), kernel(), runtime.GOOS, runtime.GOARCH, runtime.Version())

	return out.String()
}

// Load is the machine's load average, for what else it did.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}

	return strings.Join(strings.Fields(string(text))[:3], ", ")
}

// Modules are the versions of the named modules in this program.
func Modules(names ...string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}

	var found []string

	for _, module := range info.Deps {
		if slices.Contains(names, module.Path) {
			found = append(found, module.Path+" "+module.Version)
		}
	}

	return strings.Join(found, ", ")
}

func memory() string {
	kib, err := strconv.ParseFloat(strings.TrimSuffix(fileField("/proc/meminfo", "MemTotal", ""), " kB"), 64)
	if err != nil {
		return "unknown memory"
	}

	return strconv.FormatFloat(kib/(1<<20), 'f', 0, 64) + " GiB of memory"
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown kernel"
	}

	return "kernel " + strings.TrimSpace(string(text))
}

// fileField returns what stands after a name and a colon in a file.
func fileField(file, name, otherwise string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return otherwise
	}

	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}

	return otherwise
}
