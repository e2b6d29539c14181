//go:build unix

package stress

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// instant is a reading of the machine's monotonic clock in nanoseconds. It is the same clock in all processes.
type instant int64

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("the machine has no monotonic clock: " + err.Error())
	}

	return instant(t.Nano())
}

// operation is what a worker did.
type operation string

const (
	opAcquire operation = "acquire"
	// opTransfer is of one of the two accounts.
	opTransfer operation = "transfer"
	opRelease  operation = "release"
	// opWrite is the guarded read-modify-write in the database.
	opWrite operation = "write"
	// opRead is a reader's guarded transaction.
	opRead operation = "read"
	// opOutside is a read or a write of the register outside.
	opOutside operation = "outside"
	// opAsk is Check or Extend.
	opAsk operation = "ask"
	// opClose is the end of a worker's locker.
	opClose operation = "close"
	// opLeft is something that was in the database after that, and should not have been.
	opLeft operation = "left"
	// opTold is the question to the lock itself: are you held, and for how long.
	opTold operation = "told"
	// opLine is what the strategy was asked about the line of a name.
	opLine operation = "line"
)

// phase is which moment of an operation a record is of.
type phase string

const (
	phaseCall phase = "call"
	// phaseCommit is the moment before a COMMIT is sent, for opWrite and for a release in a transaction.
	phaseCommit phase = "commit"
	phaseReturn phase = "return"
	// phaseEnter, phaseLeave and phaseGrant are of opLine: somebody stands in line, has begun to leave it, or
	// was granted the name, in its turn or without a wait.
	phaseEnter phase = "enter"
	phaseLeave phase = "leave"
	phaseGrant phase = "grant"
)

// outcome is what the caller learned.
type outcome string

const (
	outcomeOK outcome = "ok"
	// outcomeNo: the answer was no, for certain: not acquired, lost, refused.
	outcomeNo outcome = "no"
	// outcomeUnknown: the caller does not know whether it happened.
	outcomeUnknown outcome = "unknown"
)

// record is one line of a worker's log.
type record struct {
	Time    instant   `json:"t"`
	Op      operation `json:"op"`
	Phase   phase     `json:"phase"`
	ID      int64     `json:"id,omitempty"` // of the operation, within the process
	Name    string    `json:"name,omitempty"`
	Owner   string    `json:"owner,omitempty"`
	Token   int64     `json:"token,omitempty"`
	Outcome outcome   `json:"outcome,omitempty"`
	// Until is how long the lock said that it can be trusted, as a time.
	Until instant `json:"until,omitempty"`
	// Held says that the lock, asked after a refusal, said that it was held.
	Held bool `json:"held,omitempty"`
	// Shared says that the lock is a reader's, Value what was read under it, and Differs that it changed meanwhile.
	Shared  bool  `json:"shared,omitempty"`
	Value   int64 `json:"value,omitempty"`
	Differs bool  `json:"differs,omitempty"`
	// Together says that the acquisition is for other names, too.
	Together bool `json:"together,omitempty"`
	// Adopted says that the lock was detached by somebody else, and Detached that it is left to somebody, for whom it is kept until Until.
	Adopted  bool `json:"adopted,omitempty"`
	Detached bool `json:"detached,omitempty"`
	// Frees says that the COMMIT is that of a release in a transaction.
	Frees bool `json:"frees,omitempty"`
	// Wait is the place in line that an opLine is about, Locker which of the worker's stands there, and Began
	// when the statement was sent.
	Wait   string  `json:"wait,omitempty"`
	Locker int     `json:"locker,omitempty"`
	Began  instant `json:"began,omitempty"`
	Err    string  `json:"err,omitempty"`
	// Note is what is wrong by itself, whatever the others recorded.
	Note string `json:"note,omitempty"`
	// Failed is what went wrong with the run, and not with the locks.
	Failed string `json:"failed,omitempty"`
}

// logbookSize is more than a worker writes in a round.
const logbookSize = 64 << 20

// logbook is where a worker writes its records: a file that is mapped into memory. What was written stays when
// the process is killed, and costs no system call.
type logbook struct {
	mutex sync.Mutex
	pages []byte
	used  int
}

func openLogbook(name string) (*logbook, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	// A file with a hole: it takes up what is written.
	if err := file.Truncate(logbookSize); err != nil {
		return nil, err
	}

	pages, err := unix.Mmap(int(file.Fd()), 0, logbookSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}

	return &logbook{pages: pages}, nil
}

func (l *logbook) write(r record) {
	line, err := json.Marshal(r)
	if err != nil {
		panic("write the log: " + err.Error())
	}

	line = append(line, '\n')

	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.used+len(line) > len(l.pages) {
		// Without its records a worker proves nothing.
		panic("the log is full")
	}

	l.used += copy(l.pages[l.used:], line)
}

// readLogbook reads a worker's records. The last line of one that was killed may be cut.
func readLogbook(name string) ([]record, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	var records []record

	lines := bufio.NewReader(file)

	for number := 1; ; number++ {
		// After the last record there are zeros.
		first, err := lines.Peek(1)
		if errors.Is(err, io.EOF) || err == nil && first[0] == 0 {
			return records, nil
		}

		line, err := lines.ReadBytes('\n')

		switch {
		case errors.Is(err, io.EOF) || bytes.IndexByte(line, 0) >= 0:
			return records, nil
		case err != nil:
			return nil, err
		}

		var r record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, number, err)
		}

		records = append(records, r)
	}
}
