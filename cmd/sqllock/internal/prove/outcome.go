package prove

import (
	"bufio"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/sqllock"
)

// Verdict is what came out of a case, or of a promise.
type Verdict string

// The verdicts.
const (
	Kept   Verdict = "kept"
	Broken Verdict = "BROKEN"
	NotRun Verdict = "not run"
)

// Outcome is that of one case.
type Outcome struct {
	Case    string  `json:"case"`
	Promise string  `json:"promise"`
	Verdict Verdict `json:"verdict"`
	// Said is what the case said: of a failure, or why it was not run.
	Said string `json:"said,omitempty"`
	// Concerns: the case is about this strategy on this kind of database. One that is and was not run is missing in the
	// proof.
	Concerns bool `json:"concerns"`
}

// notSetUp begins what is said of a case that could not be tried for what the database allows, rather than for what it
// is about. It is no verdict on a lock.
const notSetUp = "not set up: "

// Lines of package testing in the format of -test.v=test2json: a marker, and what a test is about to do, or how it
// ended. What a test says comes in lines without one, behind the name of who speaks.
const marker = "\x16"

var (
	ended    = regexp.MustCompile(`^\x16 *--- (PASS|FAIL|SKIP): (.+) \([0-9.]+s\)$`)
	speaking = regexp.MustCompile(`^\x16=== (?:RUN|NAME|CONT|PAUSE) +(.*)$`)
	place    = regexp.MustCompile(`^ *[\w.-]+\.go:\d+: `)
)

// outcomes reads what a process says that runs cases, and tells of each when it has ended. The names are those of the
// cases; what else it says is returned.
func outcomes(from io.Reader, names []string, tell func(Outcome)) (rest string, err error) {
	known := map[string]string{}
	for _, name := range names {
		known[testName(name)] = name
	}

	var (
		said    = map[string][]string{}
		other   []string
		current string
	)

	lines := bufio.NewReader(from)

	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")

		// A test that writes without a newline has the marker in the middle of a line.
		if at := strings.Index(line, marker); at > 0 {
			line = line[at:]
		}

		switch end, speaker := ended.FindStringSubmatch(line), speaking.FindStringSubmatch(line); {
		case end != nil:
			current = end[2]

			if name, ok := known[caseOf(current)]; ok {
				tell(outcome(name, end[1], said[current]))
			}
		case speaker != nil:
			current = speaker[1]
		case line == "" || strings.HasPrefix(line, marker):
		case known[caseOf(current)] != "":
			said[current] = append(said[current], line)
		default:
			other = append(other, line)
		}

		if err != nil {
			if err == io.EOF {
				err = nil
			}

			return strings.Join(other, "\n"), err
		}
	}
}

// testName is a case's name as package testing writes it.
func testName(name string) string { return strings.ReplaceAll(name, " ", "_") }

// suiteTests are what stands before a case's name.
const (
	suiteTest = "suite"
	locksTest = "locks"
)

// caseOf is the part of a test's name that is a case's.
func caseOf(test string) string {
	return strings.TrimPrefix(strings.TrimPrefix(test, suiteTest+"/"), locksTest+"/")
}

func outcome(name, result string, lines []string) Outcome {
	o := Outcome{Case: name, Promise: promiseOf(name), Concerns: true}

	switch result {
	case "PASS":
		o.Verdict = Kept

		return o
	case "FAIL":
		o.Verdict = Broken
	case "SKIP":
		o.Verdict = NotRun
	}

	o.Said = message(lines)

	if result == "SKIP" {
		said := place.ReplaceAllString(o.Said, "")
		o.Said, o.Concerns = strings.CutPrefix(said, notSetUp)
	}

	switch {
	case full(o):
		o.Verdict, o.Said = NotRun, "the server took no more connections"
	case o.Verdict == Broken && silent(o.Said):
		o.Verdict, o.Said = NotRun, "the server did not answer in the time that the case has: "+o.Said
	}

	return o
}

// failure is where package testing says that a case failed.
var failure = regexp.MustCompile(`(?m)^\w+\.go:\d+: `)

// silent says whether all that a case complains of is that no answer came in time. Leases of cases are short, and a server
// that is far away or has much to do may need longer than they leave.
func silent(said string) bool {
	complaints := failure.Split(said, -1)[1:]

	return len(complaints) > 0 && !slices.ContainsFunc(complaints, func(complaint string) bool {
		return !strings.Contains(complaint, sqllock.ErrUnreachable.Error())
	})
}

// message is what a case said, without the indentation.
func message(lines []string) string {
	var said []string

	for _, line := range lines {
		said = append(said, strings.TrimSpace(line))
	}

	return strings.Join(said, "\n")
}

// full says whether a case failed because there was no connection for it, which is no fault of the lock. Cases that
// fill the server up themselves say so.
func full(o Outcome) bool {
	return strings.Contains(o.Said, sqllock.ErrTooManyConnections.Error()) && !strings.Contains(o.Said, "sqllocktest: the server is full")
}
