package page_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/bench/torture/internal/judge"
	"github.com/sqllock/sqllock/bench/torture/internal/page"
)

// small is a record of a few cells.
func small() page.Record {
	const (
		ours   = "postgres/sqllock cas"
		byHand = "postgres/by hand"
		other  = "redis/other, as its README"
		third  = "redis/third"
	)

	plain := func(n int) map[judge.Protection]int { return map[judge.Protection]int{judge.Plain: n} }

	return page.Record{
		Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61*time.Minute + 300*time.Millisecond, Machine: "2 × a processor",
		Lease: 3 * time.Second, Repeats: 2,
		Versions: []page.Version{{"postgres", "PostgreSQL 17.1, fsync=on"}, {"redis", "Redis 8.0"}},
		Locks: []page.Row{
			{Name: "sqllock cas", Server: "postgres", Ours: true, Settings: "its defaults", Token: "counts grants"},
			{Name: "other, as its README", Server: "redis", Settings: "one | two", Module: "example.org/other", Version: "v1.2.3", Promise: "none", Source: "https://example.org", Smallest: "least"},
			{Name: "by hand", Server: "postgres", Settings: "one | two"},
			{Name: "third", Server: "redis", Settings: "three", Module: "example.org/other", Version: "v1.2.3", Promise: "none", Source: "https://example.org"},
			{Name: "good", Server: "redis", Settings: "one | two", Promise: "Much.", Source: "https://example.org/good"},
		},
		Cells: []judge.Cell{
			{Lock: ours, Fault: judge.Nothing, Kind: judge.Good, Idle: 20 * time.Millisecond},
			{Lock: ours, Fault: judge.Killed, Kind: judge.Good, Idle: 2444 * time.Millisecond, Overtaken: 1},
			{Lock: ours, Fault: judge.Crowd, Kind: judge.Good, Idle: 700 * time.Millisecond, Overtaken: 4},
			{
				Lock: ours, Fault: judge.Stopped, Kind: judge.Good,
				LateWrites: map[judge.Protection]int{judge.Plain: 2, judge.Token: 0}, RefusedWrites: map[judge.Protection]int{judge.Token: 1},
			},
			{Lock: ours, Fault: judge.Cut, Kind: judge.Stuck},
			{Lock: ours, Fault: judge.Deaf, Kind: judge.None, Why: []string{"there is none"}},
			{Lock: ours, Fault: judge.Slow, Kind: judge.Failed, Why: []string{"no server"}},

			{Lock: byHand, Fault: judge.Nothing, Kind: judge.Broken, Lost: 1, Why: []string{"1 holder was told that it had lost it"}},
			{Lock: byHand, Fault: judge.Stopped, Kind: judge.Broken, LateWrites: plain(3), NeverTold: 1, Twice: 2 * time.Second, Why: []string{"3 late writes", "1 never told"}},
			{Lock: byHand, Fault: judge.Stopped, Kind: judge.Broken, LateWrites: plain(1), NeverTold: 1, Why: []string{"1 late writes", "1 never told"}},
			{Lock: byHand, Fault: judge.Crowd, Kind: judge.Broken, Waited: 200, Served: 199, Overtaken: 63},

			{Lock: other, Fault: judge.Cut, Kind: judge.Broken, Twice: 3111 * time.Millisecond, LateWrites: plain(7), Why: []string{"two for 3.1 s"}},
			{Lock: other, Fault: judge.Deaf, Kind: judge.Broken, Twice: 12 * time.Second, Why: []string{"two for 12.0 s"}},
			{Lock: other, Fault: judge.Clock, Kind: judge.Broken, NeverTold: 1, Twice: time.Second},
			{Lock: third, Fault: judge.Cut, Kind: judge.Broken, Twice: 900 * time.Millisecond, Why: []string{"two for 0.9 s"}},
			{Lock: third, Fault: judge.Deaf, Kind: judge.Broken, Twice: time.Second, Why: []string{"two for 1.0 s"}},
			{Lock: third, Fault: judge.Clock, Kind: judge.Broken, NeverTold: 1, Twice: time.Second},
			{Lock: third, Fault: judge.Slow, Kind: judge.Broken, Why: []string{"told after 4.0 s"}},
			{Lock: third, Fault: judge.Crowd, Kind: judge.Broken},
		},
	}
}

const golden = `# Title

<!-- generated: table -->

||no fault|killed|stopped|unfenced|cut|deaf|slow answers|restart|fail-over|clock|full pool|crowd|
|---|---|---|---|---|---|---|---|---|---|---|---|---|
|*PostgreSQL*|||||||||||||
|**sqllock** cas|🟩|🟩 2.4 s|🟩|not run|🟨|–|not run|not run|not run|not run|not run|🟩 0.7 s, 4 jumped|
|by hand|🟥 lost|not run|🟥 untold 2.0 s, 3 late|not run|not run|not run|not run|not run|not run|not run|not run|🟥 1 unserved, 63 jumped|
|*Redis*|||||||||||||
|other, as its README|not run|not run|not run|not run|🟥 two 3.1 s, 7 late|🟥 two 12 s|not run|not run|not run|🟥 untold 1.0 s|not run|not run|
|third|not run|not run|not run|not run|🟥 two 0.9 s|🟥 two 1.0 s|🟥 broken|not run|not run|🟥 untold 1.0 s|not run|🟥 broken|
|good|not run|not run|not run|not run|not run|not run|not run|not run|not run|not run|not run|not run|

<!-- end of generated: table -->

By hand.

<!-- generated: locks -->

*PostgreSQL*

- **sqllock** cas (its defaults)
- by hand (one | two)

*Redis*

- other, as its README (one | two), [program](smallest/least). [Docs](https://example.org): none.
- third (three)
- good (one | two)

<!-- end of generated: locks -->

<!-- generated: run -->

2026-01-02, 1h1m0s; a lease of 3 s, each cell the worst of 2 trials (*cut* and *deaf*: up to 16).

- machine: 2 × a processor
- PostgreSQL 17.1, fsync=on
- Redis 8.0
- modules: example.org/other v1.2.3

<!-- end of generated: run -->
`

func marked(section string) string {
	return "<!-- generated: " + section + " -->\n<!-- end of generated: " + section + " -->\n"
}

// written is a folder with a page of that text.
func written(t *testing.T, text string) string {
	t.Helper()

	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "README.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}

	return folder
}

func TestUpdate(t *testing.T) {
	t.Parallel()

	folder := written(t, "# Title\n\n"+marked("table")+"\nBy hand.\n\n"+marked("locks")+"\n"+marked("run"))

	for range 2 { // The second time over what the first one wrote.
		if err := page.Update(folder, small()); err != nil {
			t.Fatalf("Update = %v", err)
		}

		got, err := os.ReadFile(filepath.Join(folder, "README.md"))
		if err != nil || string(got) != golden {
			t.Errorf("Update wrote, %v,\n%s\nwant\n%s", err, got, golden)
		}
	}

	drawing, err := os.ReadFile(filepath.Join(folder, "table.svg"))
	if err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{"sqllock cas", "by hand", "Redis", "fail-over", "stuck", "two\u00a03.1\u00a0s", "7\u00a0late"} {
		if !strings.Contains(string(drawing), ">"+text+"</text>") {
			t.Errorf("the picture does not show %q", text)
		}
	}
}

func TestUpdateWantsTheMarkers(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"# Title\n",
		marked("table") + marked("locks"),
		marked("table") + marked("locks") + "<!-- generated: run -->\n",
	} {
		folder := written(t, text)

		if err := page.Update(folder, small()); !errors.Is(err, page.ErrNoMarkers) {
			t.Errorf("Update of %q = %v, want ErrNoMarkers", text, err)
		}

		if got, err := os.ReadFile(filepath.Join(folder, "README.md")); err != nil || string(got) != text {
			t.Errorf("Update of %q left %q, %v", text, got, err)
		}
	}

	if err := page.Update(t.TempDir(), small()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Update of no page = %v, want ErrNotExist", err)
	}
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "record.json")
	if err := page.Write(file, small()); err != nil {
		t.Fatal(err)
	}

	if got, err := page.Read(file); err != nil || !reflect.DeepEqual(got, small()) {
		t.Errorf("Read = %+v, %v, want what was written: %+v", got, err, small())
	}

	if err := os.WriteFile(file, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}

	if _, err := page.Read(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Read of half a file = %v, want an error that names it", err)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()

	one := judge.Cell{
		Lock: "a", Fault: judge.Cut, Kind: judge.Good, Why: []string{"x"}, Twice: 1, Lost: 2, Idle: 9, Waited: 8, Served: 8,
		LateWrites: map[judge.Protection]int{judge.Plain: 1, judge.Token: 0},
	}
	two := judge.Cell{
		Lock: "a", Fault: judge.Cut, Kind: judge.Broken, Why: []string{"y", "x"}, Twice: 3, Lost: 1, NeverTold: 1, Waited: 8, Served: 6,
		LateWrites: map[judge.Protection]int{judge.Plain: 5, judge.Token: 1}, RefusedWrites: map[judge.Protection]int{judge.Token: 2}, Overtaken: 7,
	}
	want := judge.Cell{
		Lock: "a", Fault: judge.Cut, Kind: judge.Broken, Why: []string{"x", "y"}, Twice: 3, Lost: 2, Idle: 9, NeverTold: 1,
		Waited: 8, Served: 6, Overtaken: 7,
		LateWrites: map[judge.Protection]int{judge.Plain: 5, judge.Token: 1}, RefusedWrites: map[judge.Protection]int{judge.Token: 2},
	}

	if got := page.Merge(one, two); !reflect.DeepEqual(got, want) {
		t.Errorf("Merge = %+v, want %+v", got, want)
	}

	if one.LateWrites[judge.Plain] != 1 {
		t.Errorf("Merge changed a cell that it merged: %+v", one)
	}

	for _, test := range []struct{ a, b, want judge.Kind }{
		{judge.Good, judge.Stuck, judge.Stuck},
		{judge.Stuck, judge.Broken, judge.Broken},
		{judge.Good, judge.Failed, judge.Failed},
		{judge.Failed, judge.Broken, judge.Broken},
		{judge.None, judge.None, judge.None},
	} {
		if got := page.Merge(judge.Cell{Kind: test.a}, judge.Cell{Kind: test.b}).Kind; got != test.want {
			t.Errorf("Merge of %s and %s is %s, want %s", test.a, test.b, got, test.want)
		}

		if got := page.Merge(judge.Cell{Kind: test.b}, judge.Cell{Kind: test.a}).Kind; got != test.want {
			t.Errorf("Merge of %s and %s is %s, want %s", test.b, test.a, got, test.want)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()

	a, b := small(), small()

	if got := page.Compare(a, b); len(got) != 0 || got.String() != "" {
		t.Errorf("Compare with the same = %q, want nothing", got)
	}

	b.Cells[0].Idle = time.Hour        // no other kind
	b.Cells[1].Kind = judge.Broken     // another kind
	b.Cells[8].Kind = judge.Good       // one of two trials: the worst is the same
	b.Cells = b.Cells[:len(b.Cells)-1] // one is missing
	b.Locks = append(b.Locks, page.Row{Name: "new", Server: "etcd"})
	b.Cells = append(b.Cells, judge.Cell{Lock: "etcd/new", Fault: judge.Slow, Kind: judge.Stuck})

	want := `postgres/sqllock cas, killed: good, then broken
redis/third, crowd: broken, then no cell
etcd/new, slow answers: no cell, then stuck
`
	if got := page.Compare(a, b).String(); got != want {
		t.Errorf("Compare =\n%s\nwant\n%s", got, want)
	}
}
