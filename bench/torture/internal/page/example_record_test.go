package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
	"github.com/sqllock/sqllock/bench/torture/internal/page"
)

// TestExample draws a whole page from a made-up record. With -artifacts, go test keeps it.
func TestExample(t *testing.T) {
	t.Parallel()

	folder := t.ArtifactDir()

	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(folder, "README.md"), text, 0o644); err != nil {
		t.Fatal(err)
	}

	if err := page.Update(folder, example()); err != nil {
		t.Errorf("Update of bench/torture/README.md = %v", err)
	}
}

// example is a record as large as that of a run. Nothing in it was measured.
func example() page.Record {
	r := page.Record{
		Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 97 * time.Minute, Machine: "2 × a processor", Lease: 3 * time.Second, Repeats: 2,
		Versions: []page.Version{{"PostgreSQL", "17"}, {"MySQL", "9"}, {"Redis", "8"}},
	}

	for _, lock := range []struct {
		server string
		names  []string
	}{
		{"postgres", []string{
			"sqllock cas", "sqllock insert", "sqllock forupdate", "sqllock advisory", "sqllock cas, asynchronous commit",
			"pg_advisory_lock by hand", "the same, pinged", "row with an expiry by hand, database's clock", "the same, client's clock",
			"pglock, as its README", "pglock, Do", "goose session lock", "goose table lock",
		}},
		{"mysql", []string{"sqllock cas", "sqllock insert", "sqllock forupdate", "sqllock advisory", "GET_LOCK by hand"}},
		{"redis", []string{"redislock, as its README", "redislock, refreshed", "redsync, as its README", "redsync, extended"}},
		{"redis3", []string{"redsync on three servers, extended"}},
		{"etcd", []string{"etcd concurrency.Mutex"}},
		{"zookeeper", []string{"go-zookeeper/zk Lock", "zk Lock, session watched"}},
		{"kubernetes", []string{"client-go leaderelection"}},
	} {
		for i, name := range lock.names {
			row := page.Row{
				Name: name, Server: lock.server, Ours: len(name) > 7 && name[:7] == "sqllock", Settings: "a setting or two", Module: "example.org/" + lock.server,
				Version: "v1.2.3", Promise: "the holder has to finish before the lock expires", Source: "https://example.org/" + lock.server + "#promise",
			}
			r.Locks = append(r.Locks, row)

			for j, fault := range judge.Faults() {
				r.Cells = append(r.Cells, made(row, fault, i*7+j*3+len(lock.server)))
			}
		}
	}

	return r
}

// made is a cell that nobody measured.
func made(row page.Row, fault judge.Fault, n int) judge.Cell {
	c := judge.Cell{Lock: row.ID(), Fault: fault, Kind: judge.Good, Idle: time.Duration(n%5) * 700 * time.Millisecond}
	if row.Ours {
		return c
	}

	switch n % 7 {
	case 0:
		c.Kind, c.Twice = judge.Broken, time.Duration(1+n%90)*370*time.Millisecond
		c.Why = []string{fmt.Sprintf("two had it at once for %.1f s", c.Twice.Seconds()), "its holder was never told"}
	case 1:
		c.Kind, c.LateWrites = judge.Broken, map[judge.Protection]int{judge.Plain: n}
		c.Why = []string{fmt.Sprintf("%d late writes were accepted", n)}
	case 2:
		c.Kind, c.Why = judge.Stuck, []string{"nobody got it in 30 s"}
	case 3:
		c.Kind, c.Why = judge.None, []string{"there is no pool"}
	case 4:
		c.Kind, c.NeverTold, c.Why = judge.Broken, 1, []string{"1 holder was never told"}
	case 5:
		c.Kind, c.NeverTold, c.Why = judge.Broken, 1, []string{"a holder was never told that another has it"}
	}

	return c
}
