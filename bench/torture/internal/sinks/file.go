package sinks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// filePoll is how often a write asks for the lock of its file while another process writes.
const filePoll = time.Millisecond

// fileLine is the only line of a file: the number of its last write, and the largest token. It always has the same length, so
// that one call of the system replaces it as a whole.
const fileLine = "%020d %020d\n"

// OpenFile opens a file, which need not exist: it begins with number 0. Writes are one after the other by flock, so the file is on
// a file system of this machine.
func OpenFile(path string, checked bool) (Sink, error) {
	opened, err := open(path)
	if err != nil {
		return nil, err
	}

	return file{path, checked}, opened.Close()
}

func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

type file struct {
	path    string
	checked bool
}

// Write opens the file each time: the lock of flock is that of an opened file, and would be shared by goroutines.
func (f file) Write(ctx context.Context, token int64) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()

	opened, err := open(f.path)
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, opened.Close()) }() // which unlocks it

	if err := lock(ctx, opened); err != nil {
		return 0, fmt.Errorf("lock %s: %w", f.path, err)
	}

	var largest int64

	// A file that was just made is empty.
	if _, err := fmt.Fscanf(opened, "%d %d\n", &n, &largest); err != nil {
		if info, failed := opened.Stat(); failed != nil || info.Size() > 0 {
			return 0, errors.Join(fmt.Errorf("read %s: %w", f.path, err), failed)
		}
	}

	if f.checked && token < largest {
		return 0, ErrRefused
	}

	n++

	_, err = opened.WriteAt(fmt.Appendf(nil, fileLine, n, max(token, largest)), 0)

	return n, err
}

// lock waits for the file's lock, and can be given up.
func lock(ctx context.Context, opened *os.File) error {
	tick := time.NewTicker(filePoll)
	defer tick.Stop()

	for {
		err := unix.Flock(int(opened.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (file) Close() {}
