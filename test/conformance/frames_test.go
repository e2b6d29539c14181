package conformance_test

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/strategies/cas"
)

// maxFrames is how many functions a reader goes through from Acquire to the
// statement, when nobody else wants the name. Two of them are what calls share: acquire, of Acquire, TryAcquire, Do and TryDo, and ask, of
// an acquisition of one name and one of several.
const maxFrames = 10

// TestFramesOfAnAcquisition keeps the way from Acquire to the database short. It has the process for itself: the
// acquisitions of others have the same frames.
func TestFramesOfAnAcquisition(t *testing.T) {
	dsn(t, "sqlite")

	// The stacks of all goroutines at the first statement.
	var first atomic.Pointer[string]

	db := watched{sqlite.New(sqlitePool(t, sqliteFile(t))), func(databases.Statement, databases.Values) {
		stacks := make([]byte, 1<<20)
		text := string(stacks[:runtime.Stack(stacks, true)])
		first.CompareAndSwap(nil, &text)
	}}

	locker := lockerOn(t, cas.New(db))

	// The first one makes the name's row and asks what the server is.
	for range 2 {
		first.Store(nil)

		lock, err := locker.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}

		if err := lock.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	stacks := first.Load()
	if stacks == nil {
		t.Fatal("no statement was sent")
	}

	frames := framesFrom(t, *stacks, "sqllock.(*Locker).Acquire")
	t.Logf("%d frames:\n%s", len(frames), strings.Join(frames, "\n"))

	if len(frames) > maxFrames {
		t.Errorf("from Acquire to the database there are %d frames, want at most %d:\n%s", len(frames), maxFrames, strings.Join(frames, "\n"))
	}
}

// framesFrom lists our functions from one called root to the statement, across the
// goroutines in between.
func framesFrom(t *testing.T, stacks, root string) []string {
	t.Helper()

	goroutines := strings.Split(stacks, "\n\n")
	at := func(text string) (frames []string, created string) {
		for _, line := range strings.Split(text, "\n") {
			name, ours := strings.CutPrefix(line, "github.com/sqllock/sqllock/")
			if creator, ok := strings.CutPrefix(line, "created by github.com/sqllock/sqllock/"); ok {
				created, _, _ = strings.Cut(creator, " in goroutine")

				// That has returned, and may have been for another call. Whoever has this one made waits for it.
				if created == "sqllock/internal/call.(*Workers).run" {
					created = "sqllock/internal/call.(*Batcher[...]).Serve"
				}
			} else if ours && !strings.HasPrefix(name, "sqllock/internal/call.(*Workers).work(") { // the loop, in which nothing is to be read about a call
				name = name[:strings.LastIndex(name, "(")]
				frames = append(frames, name)
			}
		}

		return frames, created
	}

	// The goroutine that sends the statement comes first.
	frames, created := at(goroutines[0])
	frames = frames[3:] // who looks, watched.change, and the Query of package edited

	for created != "" {
		i := slices.IndexFunc(goroutines, func(text string) bool {
			above, _ := at(text)

			return slices.Contains(above, created)
		})
		if i < 0 {
			t.Fatalf("no goroutine is in %s", created)
		}

		above, next := at(goroutines[i])
		frames = append(frames, above[slices.Index(above, created):]...)
		created = next
	}

	slices.Reverse(frames)

	i := slices.IndexFunc(frames, func(name string) bool { return strings.HasSuffix(name, root) })
	if i < 0 {
		t.Fatalf("no %s in %q", root, frames)
	}

	return frames[i:]
}
