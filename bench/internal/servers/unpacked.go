package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// unpacked returns a folder with the files of a Debian package and of those
// that it needs and this machine does not have. Nothing is installed. The
// folder is below kept and is taken again by the next run.
func unpacked(ctx context.Context, name, kept string) (root string, err error) {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return "", errors.New("there is no apt-get")
	}

	// apt takes a relative folder for one of its own.
	if kept, err = filepath.Abs(kept); err != nil {
		return "", err
	}

	root = filepath.Join(kept, name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}

	if err := os.MkdirAll(kept, 0o755); err != nil {
		return "", err
	}

	work, err := os.MkdirTemp(kept, "unpack-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	// What apt leaves in its cache, and a lock for; both are ours here.
	if err := os.MkdirAll(filepath.Join(work, "partial"), 0o755); err != nil {
		return "", err
	}

	if err := run(ctx, apt, "install", "--download-only", "--yes", "--no-install-recommends",
		"-o", "Dir::Cache::archives="+work, "-o", "Debug::NoLocking=1", "--", name); err != nil {
		return "", err
	}

	archives, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return "", err
	}

	whole := filepath.Join(work, "root")

	for _, archive := range archives {
		if err := run(ctx, "dpkg-deb", "--extract", archive, whole); err != nil {
			return "", err
		}
	}

	return root, os.Rename(whole, root)
}

func run(ctx context.Context, name string, args ...string) error {
	output, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")

		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, lines[len(lines)-1])
	}

	return nil
}
