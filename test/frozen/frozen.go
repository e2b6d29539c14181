// Package frozen takes revisions out of the history of this clone.
package frozen

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Commit is the revision whose locks fleets use already, and whose API programs: that of the last release. Ours must be able to run
// beside them, on its tables and on today's. Change it when the next release is tagged, and never to have a test pass.
const Commit = "b9d8a39d456410179c09832ea0004f181ad9ad10"

// Extract writes the files of a revision into a folder, which it makes, and returns its commit.
func Extract(ctx context.Context, revision, folder string) (commit string, err error) {
	root, err := Output(ctx, "", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", err
	}

	commit, err = Output(ctx, root, nil, "git", "rev-parse", "--verify", "--quiet", revision+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("revision %s is not in this clone; git fetch --unshallow gets it if the clone is shallow", revision)
	}

	packed := filepath.Clean(folder) + ".zip"
	defer func() { err = errors.Join(err, os.RemoveAll(packed)) }()

	if _, err := Output(ctx, root, nil, "git", "archive", "--output="+packed, commit); err != nil {
		return "", err
	}

	archive, err := zip.OpenReader(packed)
	if err != nil {
		return "", err
	}
	defer archive.Close()

	return commit, os.CopyFS(folder, archive)
}

// Output returns what a command prints, which runs in a folder with some more variables in its environment.
func Output(ctx context.Context, folder string, variables []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), variables...)

	text, err := cmd.Output()

	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}

	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}

	return strings.TrimSpace(string(text)), nil
}
