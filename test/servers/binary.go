package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/test/servers/child"
	"github.com/sqllock/sqllock/test/servers/freeport"
)

// folderPrefix begins the name of every temporary folder of ours.
const folderPrefix = "sqllock-server-"

// installation is the programs of a server, found on this machine.
type installation struct {
	program string   // the server
	users   []string // accounts that it may run as when we are root, which servers refuse; the first that exists

	// prepare returns the command that makes a data directory, and writes the files it needs into the folder.
	prepare func(ctx context.Context, folder, password string) (*exec.Cmd, error)
	// options are those of the server.
	options func(folder, port string) []string

	stopSignal  syscall.Signal
	crashSignal syscall.Signal
}

// folders starts servers from programs on this machine, each in a temporary folder.
type folders struct {
	maker    identity
	password string
}

func newFolders(maker identity, password string) *folders {
	removeLeftOverFolders()

	return &folders{maker: maker, password: password}
}

// get starts the server if its programs are installed.
func (f *folders) get(ctx context.Context, e engine) (*server, error) {
	found, err := e.locate(ctx)
	if err != nil {
		return nil, err
	}

	account, err := accountFor(found.users)
	if err != nil {
		return nil, err
	}

	folder, err := f.makeFolder(account)
	if err != nil {
		return nil, err
	}

	started, err := f.start(ctx, e, found, folder, account)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", found.program, err), removeFolder(folder))
	}

	return started, nil
}

// accountFor returns the account that a server runs as: our own, unless we are root.
func accountFor(names []string) (*child.Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is a meaningful account: our own
	}

	for _, name := range append(slices.Clone(names), "nobody") {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}

		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)

		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, err
		}

		return &child.Account{UID: uint32(uid), GID: uint32(gid)}, nil
	}

	return nil, fmt.Errorf("a server must not run as root, and there is none of the accounts %s, nobody",
		strings.Join(names, ", "))
}

func (f *folders) makeFolder(account *child.Account) (string, error) {
	folder, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return "", err
	}

	err = os.WriteFile(filepath.Join(folder, "maker"), []byte(f.maker.String()), 0o600)
	if err == nil && account != nil {
		err = os.Chown(folder, int(account.UID), int(account.GID))
	}

	if err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}

	return folder, nil
}

// giveAway lets the server's account read the files that were written for it.
func giveAway(folder string, account *child.Account) error {
	if account == nil {
		return nil
	}

	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}

	for _, entry := range entries {
		if err := os.Chown(filepath.Join(folder, entry.Name()), int(account.UID), int(account.GID)); err != nil {
			return err
		}
	}

	return nil
}

func (f *folders) start(
	ctx context.Context, e engine, found installation, folder string, account *child.Account,
) (*server, error) {
	prepare, err := found.prepare(ctx, folder, f.password)
	if err != nil {
		return nil, err
	}

	if err := giveAway(folder, account); err != nil {
		return nil, err
	}

	if err := runToEnd(ctx, prepare, folder, account); err != nil {
		return nil, fmt.Errorf("make a data directory: %w", err)
	}

	port, err := freeport.Find(ctx)
	if err != nil {
		return nil, err
	}

	power := &binaryPower{found: found, account: account, folder: folder, port: port}

	power.process, err = power.launch()
	if err != nil {
		return nil, err
	}

	stop := func(context.Context) error {
		power.stop()

		return removeFolder(folder)
	}

	version, dsn, err := f.await(ctx, e, power.process, folder, port)
	if err != nil {
		power.stop()

		return nil, err
	}

	return &server{
		from: "binary " + found.program, dsn: dsn, version: version, stop: stop, power: power,
		neighbour: net.JoinHostPort(loopback, port),
	}, nil
}

func (f *folders) await(
	ctx context.Context, e engine, process *child.Process, folder, port string,
) (version, dsn string, err error) {
	if started, err := identify(process.PID()); err == nil {
		err = os.WriteFile(filepath.Join(folder, "process"), []byte(started.String()), 0o600)
		if err != nil {
			return "", "", err
		}
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	dsn = e.dsn(net.JoinHostPort(loopback, port), f.password)

	version, err = e.waitReady(ctx, dsn, func() error { return endOf(process, folder) })

	return version, dsn, err
}

// endOf says why a server has ended; nil while it runs.
func endOf(process *child.Process, folder string) error {
	select {
	case <-process.Done():
		return fmt.Errorf("the server ended: %s", logEnd(folder))
	default:
		return nil
	}
}

// startIn starts cmd in folder, with its output appended to the folder's log.
func startIn(cmd *exec.Cmd, folder string, options child.Options) (*child.Process, error) {
	output, err := os.OpenFile(filepath.Join(folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()

	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, output, output
	cmd.Env = append(os.Environ(), "HOME="+folder, "LC_ALL=C")

	return child.Start(cmd, options)
}

func runToEnd(ctx context.Context, cmd *exec.Cmd, folder string, account *child.Account) error {
	process, err := startIn(cmd, folder, child.Options{User: account, DeathSignal: syscall.SIGKILL})
	if err != nil {
		return err
	}

	select {
	case <-process.Done():
	case <-ctx.Done():
		process.Stop(syscall.SIGTERM, 2*time.Second)

		return context.Cause(ctx)
	}

	if err := process.Err(); err != nil {
		return fmt.Errorf("%w: %s", err, logEnd(folder))
	}

	return nil
}

// logEnd returns the last line of the folder's log that tells of an error, else the last line.
func logEnd(folder string) string {
	text, err := os.ReadFile(filepath.Join(folder, "log"))
	if err != nil {
		return err.Error()
	}

	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		for _, mark := range []string{"[ERROR]", "FATAL:", "error:"} {
			if strings.Contains(line, mark) {
				return line
			}
		}
	}

	return lastLine(string(text))
}

// removeFolder tries more than once: on Linux a server's last helpers may still write while they end.
func removeFolder(folder string) error {
	var err error
	for range 5 {
		if err = os.RemoveAll(folder); err == nil {
			return nil
		}
	}

	return err
}

// removeLeftOverFolders removes the folders of runs that were killed, and ends the servers in them. Best
// effort: what cannot be removed now stays for the next run.
func removeLeftOverFolders() {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*"))
	if err != nil {
		return
	}

	for _, folder := range left {
		maker, err := readIdentity(filepath.Join(folder, "maker"))
		if err != nil || !maker.gone() {
			continue
		}

		if served, err := readIdentity(filepath.Join(folder, "process")); err == nil && served.running() {
			if process, err := os.FindProcess(served.pid); err == nil {
				_ = process.Kill()
			}
		}

		_ = removeFolder(folder)
	}
}

func readIdentity(file string) (identity, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return identity{}, err
	}

	return parseIdentity(string(text))
}

// locateProgram returns the first of the candidates whose --version is accepted. A pattern may match several
// versions of a program; the highest comes first.
func locateProgram(
	ctx context.Context, accept func(version string) bool, names, folderPatterns []string,
) (string, error) {
	for _, candidate := range candidates(names, folderPatterns) {
		version, err := exec.CommandContext(ctx, candidate, "--version").Output()
		if err == nil && accept(string(version)) {
			return filepath.EvalSymlinks(candidate)
		}
	}

	return "", absentError("no " + strings.Join(names, " or ") + " on PATH or in the usual folders")
}

func candidates(names, folderPatterns []string) []string {
	var found []string

	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}

	for _, pattern := range folderPatterns {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}

		slices.SortFunc(dirs, func(a, b string) int { return compareNatural(b, a) })

		for _, folder := range dirs {
			for _, name := range names {
				if path := filepath.Join(folder, name); exists(path) {
					found = append(found, path)
				}
			}
		}
	}

	return found
}

// compareNatural orders paths so that version 17 is above version 9.
func compareNatural(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}

	return strings.Compare(a, b)
}
