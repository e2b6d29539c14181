package page

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
)

// mark is a cell's colour, where there is no other way to have one.
func mark(kind judge.Kind) string {
	switch kind {
	case judge.Good:
		return "🟩 "
	case judge.Stuck:
		return "🟨 "
	case judge.Broken:
		return "🟥 "
	default:
		return ""
	}
}

// word says in a word or two, and a figure, what came of it.
func word(c judge.Cell) string {
	switch c.Kind {
	case judge.Good:
		return strings.Join(append([]string{"ok"}, good(c)...), ", ")
	case judge.Stuck:
		return "stuck"
	case judge.Broken:
		return broken(c)
	case judge.None:
		return "–"
	default:
		return "not run"
	}
}

// brief is word beside a mark, which says the rest.
func brief(c judge.Cell) string {
	switch text := word(c); c.Kind {
	case judge.Good:
		return strings.TrimPrefix(strings.TrimPrefix(text, "ok"), ", ")
	case judge.Stuck:
		return ""
	default:
		return text
	}
}

// good has the figures of a good cell.
func good(c judge.Cell) (parts []string) {
	if c.Idle >= 500*time.Millisecond {
		parts = append(parts, seconds(c.Idle))
	}

	return append(parts, jumped(c)...)
}

// jumped says that a crowd was not served in its order, if so.
func jumped(c judge.Cell) []string {
	if c.Fault != judge.Crowd || c.Overtaken == 0 {
		return nil
	}

	return []string{fmt.Sprintf("%d jumped", c.Overtaken)}
}

// broken has the figures of a broken cell.
func broken(c judge.Cell) string {
	var parts []string

	switch {
	case c.NeverTold > 0:
		parts = append(parts, "untold "+seconds(c.Twice))
	case c.Twice > 0:
		parts = append(parts, "two "+seconds(c.Twice))
	}

	if n := c.Late(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d late", n))
	}

	if n := c.Waited - c.Served; n > 0 && c.Fault == judge.Crowd {
		parts = append(parts, fmt.Sprintf("%d unserved", n))
	}

	parts = append(parts, jumped(c)...)

	if len(parts) == 0 && c.Lost > 0 {
		return "lost"
	}

	return cmp.Or(strings.Join(parts, ", "), "broken")
}

// seconds writes a time as short as a cell needs it.
func seconds(d time.Duration) string {
	switch s := d.Seconds(); {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case s < 9.95:
		return fmt.Sprintf("%.1f s", s)
	default:
		return fmt.Sprintf("%.0f s", s)
	}
}

// serverTitle names a kind of server.
func serverTitle(kind string) string {
	titles := map[string]string{
		"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlite": "SQLite", "redis": "Redis", "redis3": "Redis, three servers",
		"etcd": "etcd", "zookeeper": "ZooKeeper", "kubernetes": "Leases of Kubernetes, on a stand-in of its API server",
	}

	if title, known := titles[kind]; known {
		return title
	}

	return kind
}
