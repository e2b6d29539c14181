// Package smallest_test runs the smallest programs on real servers.
package smallest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/servers"
)

// program is one of the smallest programs, and what it prints: a regular expression for each line.
type program struct {
	name  string
	lines []string
	// late says that the last number is a later time than the one before it, at least once in three times.
	late bool
}

// TestPrograms: each program ends by itself, and shows what its comment says.
func TestPrograms(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()

	output, err := exec.CommandContext(t.Context(), "go", "build", "-p", "1", "-o", folder, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	const seconds = `\d\.\d+ s `

	for _, on := range []struct {
		kind      string
		arguments func(s servers.Server) []string
		programs  []program
	}{
		{"postgres", func(s servers.Server) []string { return []string{s.DSN(0, s.Endpoints()[0])} }, []program{
			{name: "goosetable", lines: []string{
				"first: granted", "second: granted " + seconds + "after .*",
				"first: 3 s after the network is back: the error of my context is <nil>, .*",
				"first: told by Unlock alone, after the work: .*lock.*",
			}},
			{name: "pglockdo", lines: []string{
				"first: granted", "second: granted " + seconds + "after .*",
				`first: not told 1\d\.\d s after the cut: the error of the context of Do is <nil>`,
			}},
			{name: "advisory", lines: []string{
				"first: granted", "second: granted " + seconds + "after .*",
				"first: 2 s later: my connection is closed: false",
				"first: told by the next statement: .*terminating connection.*",
			}},
			{name: "clientclock", lines: []string{
				"first: granted: true", "first: renewed for 3 s: true", "second: granted: true",
				"first: told by the next renewal, 1 s later; renewed: false",
			}},
		}},
		{"redis3", func(s servers.Server) []string { return s.Endpoints()[:2] }, []program{{name: "redisfailover", lines: []string{
			"first: granted and refreshed", "second: granted 0.. s later, both",
			`first: by redsync's Until, still valid for [23]\.\d s`, `first: told by the next Refresh, 1\.\d s after the last: true`,
		}}}},
		{"redis3", func(s servers.Server) []string { return []string{strings.Join(s.Endpoints(), ",")} }, []program{
			{name: "redsyncrestart", lines: []string{
				"first: granted", `second: granted, valid for [23]\.\d s`, `first: by Until, still valid for [23]\.\d s`,
				"first: told by the next Extend: false, .*",
			}},
		}},
		{"etcd", servers.Server.Endpoints, []program{{name: "etcdcut", late: true, lines: []string{
			"second: granted " + seconds + "after .*", "first: told by Session.Done " + seconds + "after the cut",
		}}}},
		{"zookeeper", servers.Server.Endpoints, []program{{name: "zklock", lines: []string{
			"first: granted", "second: granted " + seconds + "after .*",
			"first: 3 s after the network is back: .* StateHasSession, .* zk: trying to acquire a lock twice",
		}}}},
		{"kubernetes", func(s servers.Server) []string { return []string{"http://" + s.Endpoints()[0]} }, []program{
			{name: "clientgo", late: true, lines: []string{
				"second: leads " + seconds + "after .*",
				"first: told by the context of OnStartedLeading " + seconds + "after the cut",
			}},
		}},
	} {
		t.Run(on.kind, func(t *testing.T) {
			t.Parallel()

			server, err := servers.Start(t.Context(), on.kind, false)
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})

			for _, p := range on.programs {
				t.Run(p.name, func(t *testing.T) { // in turn
					output := run(t, filepath.Join(folder, p.name), on.arguments(server))
					for again := 2; p.late && !late(t, output) && again > 0; again-- {
						output = run(t, filepath.Join(folder, p.name), on.arguments(server))
					}

					if !regexp.MustCompile("^" + strings.Join(p.lines, "\n") + "\n$").MatchString(output) {
						t.Error("it printed something else than it should")
					}

					if p.late && !late(t, output) {
						t.Error("the first is not told later than the second has the lock")
					}
				})
			}
		})
	}
}

func run(t *testing.T, path string, arguments []string) string {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()

	var complaints strings.Builder

	command := exec.CommandContext(ctx, path, arguments...)
	command.Stderr = &complaints

	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, output, complaints.String())
	}

	t.Logf("\n%s", output)

	return string(output)
}

var number = regexp.MustCompile(`\d+\.\d+`)

// late says whether the last number is larger than the one before it.
func late(t *testing.T, output string) bool {
	t.Helper()

	var times []float64

	for _, text := range number.FindAllString(output, -1) {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}

		times = append(times, value)
	}

	n := len(times)

	return n > 1 && times[n-1] > times[n-2]
}

// TestMain lets the test's binary be the API server's stand-in too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == servers.APIServer {
		if err := servers.RunAPIServer(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}

		return
	}

	os.Exit(m.Run())
}
