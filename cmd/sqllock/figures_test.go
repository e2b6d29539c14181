//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkStart measures from the start of the process to the first byte of
// the command that it runs. The median is the figure.
func BenchmarkStart(b *testing.B) {
	echo, err := exec.LookPath("echo")
	if err != nil {
		b.Fatal(err)
	}

	b.Run("nothing", func(b *testing.B) { startUp(b, func() *exec.Cmd { return exec.Command(echo, "on") }) })

	if flock, err := exec.LookPath("flock"); err == nil {
		file := filepath.Join(b.TempDir(), "lock")

		b.Run("flock", func(b *testing.B) { startUp(b, func() *exec.Cmd { return exec.Command(flock, file, echo, "on") }) })
	}

	for _, name := range databaseNames() {
		url := migratedOn(b, name)

		b.Run(name+"/connection", func(b *testing.B) {
			startUp(b, func() *exec.Cmd {
				cmd := exec.Command(os.Args[0], echo, "on")
				cmd.Env = append(os.Environ(), bare+"="+url)

				return cmd
			})
		})
		b.Run(name+"/sqllock", func(b *testing.B) {
			startUp(b, func() *exec.Cmd {
				cmd := exec.Command(os.Args[0], "run", "--name", "a", "--", echo, "on")
				cmd.Env = append(os.Environ(), reexec+"=1", "DATABASE_URL="+url)

				return cmd
			})
		})
	}
}

// startUp times commands that print a line when they have started.
func startUp(b *testing.B, command func() *exec.Cmd) {
	b.Helper()

	var took []time.Duration

	for b.Loop() {
		cmd := command()

		stdout, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}

		begun := time.Now()

		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}

		line, err := bufio.NewReader(stdout).ReadString('\n')
		took = append(took, time.Since(begun))

		if err != nil || line != "on\n" {
			b.Fatalf("the command printed %q, %v", line, err)
		}

		_, _ = io.Copy(io.Discard, stdout)

		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
	}

	slices.Sort(took)
	b.ReportMetric(milli(took[len(took)/2]), "ms-median")
	b.ReportMetric(milli(took[0]), "ms-least")
}

// BenchmarkLoss measures from the moment that the server is gone to the end of
// the last process of the group, which does not end when it is asked to, and
// how long before the end of the trust window that was: the least of all runs.
func BenchmarkLoss(b *testing.B) {
	const lease = 3 * time.Second

	for _, name := range serverNames() {
		for _, c := range []struct {
			what string
			take func(*proxy)
		}{{"frozen", (*proxy).freeze}, {"unreachable", (*proxy).unreachable}} {
			b.Run(fmt.Sprintf("%s/%s", name, c.what), func(b *testing.B) {
				var took, left []time.Duration

				for b.Loop() {
					l := lose(b, name, lease, "term,kill=1s", c.take)
					took, left = append(took, l.gone.Sub(l.taken)), append(left, l.beforeTrust())
				}

				slices.Sort(took)
				b.ReportMetric(milli(took[len(took)/2]), "ms-median")
				b.ReportMetric(milli(slices.Min(left)), "ms-before-trust-ends")
			})
		}
	}
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
