package text_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/text"
)

func TestWrap(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		in   string
		want []string
	}{
		{"", []string{""}},
		{"short", []string{"short"}},
		{"ten cols. and  more", []string{"ten cols.", "and more"}},
		{"a postgres://app@db/app b", []string{"a", "postgres://app@db/app", "b"}},
		{"锁锁锁 锁锁", []string{"锁锁锁", "锁锁"}},
	} {
		if got := text.Wrap(c.in, 10); !slices.Equal(got, c.want) {
			t.Errorf("Wrap(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestFitMiddle(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"", 5, ""},
		{"short", 5, "short"},
		{"customer/0000/invoices", 11, "custo…oices"},
		{"customer/0000/invoices", 10, "custo…ices"},
		{"锁锁锁锁锁锁", 7, "锁锁…锁"},
		{"abc", 1, "…"},
		{"abc", 0, "…"},
	} {
		if got := text.FitMiddle(c.in, c.columns); got != c.want || text.Width(got) > max(c.columns, 1) {
			t.Errorf("FitMiddle(%q, %d) = %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		in   time.Duration
		want string
	}{
		{-time.Second, "0s"},
		{0, "0s"},
		{1940 * time.Millisecond, "1.9s"},
		{27900 * time.Millisecond, "27s"},
		{3*time.Minute + 12*time.Second, "3m12s"},
		{5*time.Hour + 7*time.Minute, "5h07m"},
		{12*24*time.Hour + 3*time.Hour, "12d3h"},
	} {
		if got := text.Duration(c.in); got != c.want {
			t.Errorf("Duration(%s) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()

	table := text.Table{
		Header: []string{"NAME", "HOLDER", "HELD"},
		Rows:   [][]string{{"锁锁锁锁锁锁锁锁", "a holder with a name", "3s"}, {"b", "c", "10m00s"}},
		Shrink: []int{0, 1},
	}

	for _, c := range []struct {
		width int
		want  []string
	}{
		{0, []string{
			"NAME              HOLDER                HELD",
			"锁锁锁锁锁锁锁锁  a holder with a name  3s",
			"b                 c                     10m00s",
		}},
		{34, []string{
			"NAME          HOLDER        HELD",
			"锁锁锁锁锁…   a holder wi…  3s",
			"b             c             10m00s",
		}},
		// Not less than can be read.
		{10, []string{
			"NAME      HOLDER    HELD",
			"锁锁锁…   a holde…  3s",
			"b         c         10m00s",
		}},
	} {
		if got := table.Lines(c.width); !slices.Equal(got, c.want) {
			t.Errorf("Lines(%d) = %q, want %q", c.width, got, c.want)
		}
	}
}

func TestTableOfHolders(t *testing.T) {
	t.Parallel()

	table := text.Table{
		Header:  []string{"NAME", "HOLDER", "HELD"},
		Rows:    [][]string{{"a name", "a long label (1) (host, pid 17)", "3s"}, {"b", "host, pid 18", "4s"}},
		Shrink:  []int{0, 1},
		Holders: []int{1},
	}

	want := []string{
		"NAME    HOLDER                  HELD",
		"a name  a long labe…t, pid 17)  3s",
		"b       host, pid 18            4s",
	}
	if got := table.Lines(36); !slices.Equal(got, want) {
		t.Errorf("Lines(36) = %q, want %q", got, want)
	}
}
