// Command clocks writes an overlay for `go build -overlay` with which time.Now of a program is off by as many seconds as the
// environment variable TORTURE_CLOCK says: the wall clock of one process, whatever library reads it, and no other's. What counts
// elapsed time is as it was.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// reads is the line of time.Now that reads the clocks.
const reads = "\tsec, nsec, mono := runtimeNow()\n"

// offset is appended to the file.
const offset = `
var tortureOffset = func() int64 {
	value, _ := syscall.Getenv("TORTURE_CLOCK")
	seconds, _ := atoi(value)

	return int64(seconds)
}()
`

func main() {
	log.SetFlags(0)

	if len(os.Args) != 2 {
		log.Fatal("usage: clocks FOLDER, in which it writes overlay.json")
	}

	if err := write(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func write(folder string) error {
	root, err := exec.CommandContext(context.Background(), "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}

	original := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")

	text, err := os.ReadFile(original)
	if err != nil {
		return err
	}

	source := string(text)
	now := strings.Index(source, "\nfunc Now() Time {\n")

	if now < 0 || !strings.HasPrefix(source[now+len("\nfunc Now() Time {\n"):], reads) {
		return fmt.Errorf("%s: time.Now is not what this program knows; see what it is in this version of Go", original)
	}

	source = source[:now] + strings.Replace(source[now:], reads, reads+"\tsec += tortureOffset\n", 1) + offset

	const imports = "import (\n"
	source = strings.Replace(source, imports, imports+"\t\"syscall\"\n", 1)

	changed, err := filepath.Abs(filepath.Join(folder, "time.go"))
	if err != nil {
		return err
	}

	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return err
	}

	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}

	if err := os.WriteFile(changed, []byte(source), 0o644); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(folder, "overlay.json"), overlay, 0o644)
}
