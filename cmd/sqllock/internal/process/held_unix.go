//go:build unix

package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// A command is started held: as this program again, which waits for a word
// before it becomes the command. So the watchdog knows the group before the
// command can do anything, and a death of this process at any moment in
// between leaves nothing behind: without the word there is no command.
type held struct {
	gate   *os.File // where the word is written
	failed *os.File // where the number of the error comes from if it cannot be executed
}

// The word, and where the process that waits for it finds its ends of the pipes.
const (
	word      = "go"
	gateFD    = 3
	failureFD = 4
)

// startHeld starts cmd, which is this program with the arguments that make it call ServeHeld.
func startHeld(cmd *exec.Cmd) (*held, error) {
	gateRead, gateWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer gateRead.Close()

	failedRead, failedWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, gateWrite.Close())
	}
	defer failedWrite.Close()

	h := &held{gate: gateWrite, failed: failedRead}
	cmd.ExtraFiles = []*os.File{gateRead, failedWrite}

	if err := cmd.Start(); err != nil {
		h.close()

		return nil, err
	}

	return h, nil
}

// close leaves a process that still waits without the word, so that it ends.
func (h *held) close() {
	_ = h.gate.Close()
	_ = h.failed.Close()
}

// letGo gives the word and returns when the command has begun, or why it could
// not.
func (h *held) letGo() error {
	if _, err := io.WriteString(h.gate, word); err != nil {
		return nil //nolint:nilerr // it was killed meanwhile, which its status tells
	}

	_ = h.gate.Close()

	// The end of the file without a number is the command's beginning, which
	// closed the pipe, or the death of the process.
	var number [4]byte
	if _, err := io.ReadFull(h.failed, number[:]); err != nil {
		return nil //nolint:nilerr // see above
	}

	return syscall.Errno(binary.NativeEndian.Uint32(number[:]))
}

// Become makes this process the command. It returns only if it could not.
func Become(c Command) error {
	err := syscall.Exec(c.Path, append([]string{c.Path}, c.Args...), c.Env)

	return &NotExecutableError{Path: c.Path, Err: err}
}

// ServeHeld is the held process: it waits for the word and then becomes the
// command in args. It returns only if there is no command to become: with nil if
// the process that waits for it knows why, and says so.
func ServeHeld(args []string) error {
	syscall.CloseOnExec(gateFD)
	syscall.CloseOnExec(failureFD)

	gate := os.NewFile(gateFD, "gate")
	said, err := io.ReadAll(gate)

	if err != nil || string(said) != word {
		return errors.New("the process that was to start the command is gone")
	}

	err = syscall.Exec(args[0], args, os.Environ())

	var number syscall.Errno
	if errors.As(err, &number) {
		failed := os.NewFile(failureFD, "failure")
		if _, err := failed.Write(binary.NativeEndian.AppendUint32(nil, uint32(number))); err == nil {
			return nil
		}
	}

	return fmt.Errorf("exec %s: %w", args[0], err)
}
