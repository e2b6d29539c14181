package prometheus_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock/internal/filelock"
)

// programs is where unpacked packages are kept: the folder .bin of the repository, which git ignores.
var programs = filepath.Join("..", "..", ".bin", "programs")

// program returns the path of one of Prometheus' programs: from PATH, or from the Debian package, which is
// unpacked once and not installed.
func program(t *testing.T, name string) string {
	t.Helper()

	if path, err := exec.LookPath(name); err == nil {
		return path
	}

	root, err := unpacked(t.Context(), "prometheus")
	if err != nil {
		t.Fatalf("%s is not in PATH, and its Debian package is not to be had (%v): install Prometheus", name, err)
	}

	path, err := filepath.Abs(filepath.Join(root, "usr", "bin", name))
	if err == nil {
		_, err = os.Stat(path)
	}

	if err != nil {
		t.Fatalf("the Debian package has no %s: %v", name, err)
	}

	return path
}

// unpacked returns a folder with the files of a Debian package. Another test may do the same at the same time.
func unpacked(ctx context.Context, name string) (root string, err error) {
	root = filepath.Join(programs, name)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}

	if err := os.MkdirAll(programs, 0o755); err != nil {
		return "", err
	}

	work, err := os.MkdirTemp(programs, "unpack-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	// As this user also if it is root: apt's own has no access to the folder.
	download := []string{"download", "-o", "APT::Sandbox::User=", name}

	if _, err := run(ctx, work, "apt-get", download...); err != nil {
		// A new machine has no lists of packages. Who may not get them has the first error.
		if _, updating := run(ctx, work, "apt-get", "update"); updating != nil {
			return "", err
		}

		if _, err := run(ctx, work, "apt-get", download...); err != nil {
			return "", err
		}
	}

	archives, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return "", err
	}

	if len(archives) != 1 {
		return "", fmt.Errorf("apt-get download left %d packages", len(archives))
	}

	if _, err := run(ctx, work, "dpkg-deb", "--extract", filepath.Base(archives[0]), "root"); err != nil {
		return "", err
	}

	err = os.Rename(filepath.Join(work, "root"), root)
	if _, found := os.Stat(root); found == nil {
		err = nil // that of the other test
	}

	return root, err
}

// run runs a command in a folder, and returns what it prints.
func run(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder

	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(output)))
	}

	return string(output), nil
}

// server starts Prometheus with a configuration, and returns its URL.
func server(t *testing.T, config string) string {
	t.Helper()

	folder := t.TempDir()
	file := filepath.Join(folder, "prometheus.yml")

	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}

	address := freeAddress(t)
	cmd := exec.CommandContext(t.Context(), program(t, "prometheus"), "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = filelock.Deadline

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		// t.Context has ended.
		_ = cmd.Wait()
		_ = log.Close()

		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("Prometheus said:\n%s", text)
		}
	})

	return "http://" + address
}

func freeAddress(t *testing.T) string {
	t.Helper()

	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := listener.Addr().String()

	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}

	return address
}

// answerTime bounds each question to a web server.
const answerTime = 10 * time.Second
