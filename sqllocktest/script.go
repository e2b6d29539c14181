package sqllocktest

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// When says whether a fault strikes before a call takes effect or after that.
type When int

// The two moments.
const (
	// Before: the call has no effect.
	Before When = iota
	// After: the call has its effect and the answer is lost.
	After
)

// ErrBroken is the error of a fault that was given no other. It says nothing
// of whether the call took effect, as that of a broken connection.
var ErrBroken = fmt.Errorf("sqllocktest: the connection broke: %w", driver.ErrBadConn)

// Script makes calls fail, stop or repeat, by their names, and keeps a log of
// them. Of a [Memory] the names are those of its operations ("acquire",
// "renew", "check", "release", "settle", "guard", "releasetx", "holders",
// "force", "reap"), of a [Faulty] those of the statements ("cas.renew").
// Everywhere a name stands the part after the last dot is enough: "renew" is
// the renewal of any strategy, also that of many locks at a time, which alone is
// "renew-all". "*" is every call.
//
// It is safe for concurrent use. Faults that were asked for first strike first. A
// name that is none of a Memory's operations is a panic, which names them; which
// statements a Faulty will see is not known.
type Script struct {
	operations []string // that there are; empty if that is not known

	mu     sync.Mutex
	log    []uint16          // numbers of names: it grows with every call, and then costs little
	names  []string          // by number
	number map[string]uint16 // of a name
	fails  []*failure
	pauses []*pause
	twice  []string
	spread int // calls that make one operation; zero is one
}

type failure struct {
	name string
	left int
	when When
	err  error
}

type pause struct {
	name    string
	when    When
	hang    bool
	reached chan struct{}
	resumed chan struct{}
	arrive  sync.Once
	leave   sync.Once
}

func (p *pause) resume() { p.leave.Do(func() { close(p.resumed) }) }

// Spread says that an operation makes so many calls of its name, one on each of several servers that share the script. Fail
// and Count count operations then.
func (s *Script) Spread(calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.spread = calls
}

// Fail makes the next n calls of the name return err, before they take effect
// or after. If err is nil it is ErrBroken: to a locker with a [Memory] that is an unknown
// error of a driver, and no outage, during which a wait goes on. For an outage pass
// sqllock.ErrUnreachable.
func (s *Script) Fail(name string, n int, when When, err error) {
	s.check("Fail", name)

	if err == nil {
		err = ErrBroken
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.fails = append(s.fails, &failure{name, n * max(1, s.spread), when, err})
}

// Pause stops calls of the name, before they take effect or after, until
// resume is called or their context ends. reached is closed when the first
// such call is there.
func (s *Script) Pause(name string, when When) (reached <-chan struct{}, resume func()) {
	s.check("Pause", name)

	return s.stop(name, when, false)
}

// Hang is Pause for calls that do not even return when their context ends, as
// some drivers do not from a connection that was cut off.
func (s *Script) Hang(name string, when When) (reached <-chan struct{}, resume func()) {
	s.check("Hang", name)

	return s.stop(name, when, true)
}

func (s *Script) stop(name string, when When, hang bool) (<-chan struct{}, func()) {
	p := &pause{name: name, when: when, hang: hang, reached: make(chan struct{}), resumed: make(chan struct{})}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.pauses = append(s.pauses, p)

	return p.reached, func() {
		s.mu.Lock()
		s.pauses = slices.DeleteFunc(s.pauses, func(other *pause) bool { return other == p })
		s.mu.Unlock()

		p.resume()
	}
}

// Twice makes every call of the name take effect twice from now on and return
// the first result, as a driver does that repeats what it took for lost.
func (s *Script) Twice(name string) {
	s.check("Twice", name)

	s.mu.Lock()
	defer s.mu.Unlock()

	s.twice = append(s.twice, name)
}

// Statements is the log: the names of the calls in the order they were begun.
func (s *Script) Statements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	statements := make([]string, len(s.log))
	for i, number := range s.log {
		statements[i] = s.names[number]
	}

	return statements
}

// noteLocked puts a name at the end of the log.
func (s *Script) noteLocked(name string) {
	number, ok := s.number[name]

	if !ok {
		if s.number == nil {
			s.number = make(map[string]uint16)
		}

		number = uint16(len(s.names)) // there are some dozens of statements
		s.names, s.number[name] = append(s.names, name), number
	}

	s.log = append(s.log, number)
}

// Count is how often the name stands in the log.
func (s *Script) Count(name string) int {
	s.check("Count", name)

	n := 0

	for _, logged := range s.Statements() {
		if matches(name, logged) {
			n++
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	spread := max(1, s.spread)

	return (n + spread - 1) / spread
}

// Reset empties the log, forgets faults to come and resumes what is stopped.
func (s *Script) Reset() {
	s.mu.Lock()
	pauses := s.pauses
	s.log, s.fails, s.twice, s.pauses = nil, nil, nil, nil
	s.mu.Unlock()

	for _, p := range pauses {
		p.resume()
	}
}

// check panics if the name stands for no call that can come: the test would wait for
// it, or pass, for nothing.
func (s *Script) check(method, name string) {
	known := func(operation string) bool { return matches(name, operation) }

	if len(s.operations) > 0 && !slices.ContainsFunc(s.operations, known) {
		panic(fmt.Sprintf("sqllocktest: %s(%q): there is no such operation; there are %s, and * for all",
			method, name, strings.Join(s.operations, ", ")))
	}
}

// matches says whether a pattern given to a script stands for a call's name.
func matches(pattern, name string) bool {
	operation := name[strings.LastIndex(name, ".")+1:]

	return pattern == "*" || pattern == name || pattern == operation || pattern == strings.TrimSuffix(operation, "-all")
}

// play makes a call under the script.
func (s *Script) play(ctx context.Context, name string, call func() error) error {
	s.mu.Lock()
	s.noteLocked(name)
	twice := slices.ContainsFunc(s.twice, func(pattern string) bool { return matches(pattern, name) })
	s.mu.Unlock()

	if err := s.strike(ctx, name, Before); err != nil {
		return err
	}

	err := call()

	if twice {
		_ = call()
	}

	if fault := s.strike(ctx, name, After); fault != nil {
		return fault
	}

	return err
}

// strike stops the call or returns the error it has to fail with.
func (s *Script) strike(ctx context.Context, name string, when When) error {
	if err := s.wait(ctx, name, when); err != nil {
		return err
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for _, f := range s.fails {
		if f.left > 0 && f.when == when && matches(f.name, name) {
			f.left--

			return f.err
		}
	}

	return nil
}

func (s *Script) wait(ctx context.Context, name string, when When) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.pauses, func(p *pause) bool { return p.when == when && matches(p.name, name) })

	if i < 0 {
		s.mu.Unlock()

		return nil
	}

	p := s.pauses[i]
	s.mu.Unlock()
	p.arrive.Do(func() { close(p.reached) })

	if p.hang {
		<-p.resumed

		return nil
	}

	select {
	case <-p.resumed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note writes calls into the log.
func (s *Script) note(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, name := range names {
		s.noteLocked(name)
	}
}

// concerns says whether a fault is to strike the name's next call.
func (s *Script) concerns(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.ContainsFunc(s.fails, func(f *failure) bool { return f.left > 0 && matches(f.name, name) }) ||
		slices.ContainsFunc(s.pauses, func(p *pause) bool { return matches(p.name, name) }) ||
		slices.ContainsFunc(s.twice, func(pattern string) bool { return matches(pattern, name) })
}

// losesReply says whether the answer to the name's next call will be lost.
func (s *Script) losesReply(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.ContainsFunc(s.fails, func(f *failure) bool {
		return f.left > 0 && f.when == After && matches(f.name, name)
	})
}
