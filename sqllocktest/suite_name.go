package sqllocktest

import (
	"errors"
	"strings"

	"github.com/sqllock/sqllock/sqllock"
)

func nameCases() []testCase {
	return []testCase{
		{"names/are compared byte for byte", nil, namesExact},
		{"names/that cannot be are refused before any SQL", nil, namesInvalid},
	}
}

// namesExact holds locks of names that a careless database takes for equal,
// all at once.
func namesExact(e *env) {
	base := e.name
	names := []string{
		base + "a", base + "A", base + "a ", base + "a  ", base + "a\t", base + "a\n", " " + base + "a",
		base + "á", base + "a\u0301", base + "Á", base + "ss", base + "ß", base + "i", base + "ı", base + "İ",
		base + "🔒", base + "🔑", base + "鎖", base + "锁", base + "\u200b", base + "\ufeff",
		base + "'", base + `"`, base + "`", base + `\`, base + `\\`, base + `\'`, base + "%", base + "_", base + "$1", base + "?",
		base + "'; --", base + ":x", base + "\x01", base + "\x7f",
		base + strings.Repeat("x", sqllock.MaxNameLength-len(base)),
		base + strings.Repeat("x", sqllock.MaxNameLength-len(base)-1) + "y",
		base + strings.Repeat("x", sqllock.MaxNameLength-len(base)-1),
	}

	if e.features.ConnectionHeld {
		// Each may need a connection of its own, and pools are small.
		e.namesInTurn(names)

		return
	}

	var locks []*sqllock.Lock

	for _, name := range names {
		locks = append(locks, e.acquireName(e.a, name))
	}

	for _, name := range names {
		e.refusedName(e.b, name)

		if held, err := e.b.Inspect(e.ctx(), name); err != nil || held.Name != name {
			e.Errorf("Inspect(%q) = name %q, %v", name, held.Name, err)
		}
	}

	for i, lock := range locks {
		e.release(lock)

		if i+1 < len(locks) {
			e.refusedName(e.b, names[i+1])
		}
	}
}

// namesInTurn holds neighbors of the list together.
func (e *env) namesInTurn(names []string) {
	for i := 1; i < len(names); i++ {
		first, second := e.acquireName(e.a, names[i-1]), e.acquireName(e.b, names[i])

		e.refusedName(e.b, names[i-1])
		e.release(first)
		e.release(second)
	}
}

func namesInvalid(e *env) {
	for _, name := range []string{"", strings.Repeat("x", sqllock.MaxNameLength+1), "nul\x00", "\xff", "a\xc3"} {
		if _, err := e.a.Acquire(e.ctx(), name); !errors.Is(err, sqllock.ErrInvalidName) {
			e.Errorf("Acquire(%q) = %v, want ErrInvalidName", name, err)
		}

		if _, err := e.a.TryAcquire(e.ctx(), name); !errors.Is(err, sqllock.ErrInvalidName) {
			e.Errorf("TryAcquire(%q) = %v, want ErrInvalidName", name, err)
		}

		if _, err := e.a.Inspect(e.ctx(), name); !errors.Is(err, sqllock.ErrInvalidName) {
			e.Errorf("Inspect(%q) = %v, want ErrInvalidName", name, err)
		}

		if err := e.a.ForceRelease(e.ctx(), sqllock.Status{Name: name}, "test"); !errors.Is(err, sqllock.ErrInvalidName) {
			e.Errorf("ForceRelease(%q) = %v, want ErrInvalidName", name, err)
		}
	}

	if log := e.script.Statements(); len(log) != 0 {
		e.Errorf("statements sent for invalid names: %q, want none", log)
	}
}
