package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/sqllock/sqllock/test/servers/child"
)

// servicePolicy is asked by the packages' scripts whether they may start a service: invoke-rc.d(8).
const servicePolicy = "/usr/sbin/policy-rc.d"

// packages installs servers from the distribution's packages, and starts them as folders does.
type packages struct {
	folders *folders
	mutex   sync.Mutex // one installation at a time
	updated bool
}

func newPackages(f *folders) *packages { return &packages{folders: f} }

// get installs e's packages and starts the server.
func (p *packages) get(ctx context.Context, e engine) (*server, error) {
	if os.Geteuid() != 0 || !exists("/etc/debian_version") {
		return nil, absentError("only as root on Debian or Ubuntu")
	}

	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, absentError("there is no apt-get")
	}

	if err := p.install(ctx, e); err != nil {
		return nil, err
	}

	found, err := p.folders.get(ctx, e)
	if err != nil {
		return nil, err
	}

	found.from = "package" + strings.TrimPrefix(found.from, "binary")

	return found, nil
}

func (p *packages) install(ctx context.Context, e engine) (err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if ctx.Err() != nil {
		return ctx.Err()
	}

	if !p.updated {
		p.updated = true
		// Without a network the lists that are here have to do.
		_ = apt(ctx, "apt-get", "update")
	}

	names, err := search(ctx, e.apt)
	if err != nil {
		return err
	}

	if len(names) == 0 {
		return absentError("the distribution has no package for " + e.product)
	}

	restore, err := forbidServices(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()

	// --no-remove: MySQL's and MariaDB's packages shut each other out, and an installed one is not ours to remove.
	return apt(ctx, "apt-get", append([]string{
		"install", "--yes", "--no-install-recommends", "--no-remove", "-o", "DPkg::Lock::Timeout=120", "--",
	}, names...)...)
}

// search returns the names of the packages that match pattern and can be installed.
func search(ctx context.Context, pattern string) ([]string, error) {
	output, err := exec.CommandContext(ctx, "apt-cache", "search", "--names-only", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache search: %w", err)
	}

	var names []string

	for line := range strings.Lines(string(output)) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}

	return names, nil
}

// apt runs one of apt's commands to its end: an interruption half-way would leave packages that are neither
// installed nor not.
func apt(ctx context.Context, name string, args ...string) error {
	var output strings.Builder

	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = &output, &output

	process, err := child.Start(cmd, child.Options{})
	if err != nil {
		return err
	}

	<-process.Done()

	if err := process.Err(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLine(output.String()))
	}

	return nil
}

// forbidServices keeps the packages' scripts from starting servers of their own, until restore is called.
func forbidServices(ctx context.Context) (restore func() error, err error) {
	const forbidden = 101 // "action forbidden by policy"

	var exit *exec.ExitError

	err = exec.CommandContext(ctx, servicePolicy, "postgresql", "start").Run()
	if errors.As(err, &exit) && exit.ExitCode() == forbidden {
		return func() error { return nil }, nil // the machine forbids it anyway
	}

	aside := servicePolicy + ".before-sqllock-test"
	if err := os.Rename(servicePolicy, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}

	if err := os.WriteFile(servicePolicy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return nil, err
	}

	return func() error {
		if exists(aside) {
			return os.Rename(aside, servicePolicy)
		}

		return os.Remove(servicePolicy)
	}, nil
}
