package sqlite

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sqllock/sqllock/databases"
)

var _ databases.Listener = (*DB)(nil)

const (
	// lookEvery is how often a commit is looked for.
	lookEvery = 5 * time.Millisecond
	// settle is for how long after a change another one may leave the file's time as it is:
	// Linux may take it from a clock that ticks every ten milliseconds.
	settle = 12 * time.Millisecond
)

// Listen calls notified, without a channel or payload, soon after each commit, of whatever process,
// and sometimes once more. SQLite tells nobody of commits, so it looks at the times and
// sizes of the files every few milliseconds. That needs no connection, of which the pool
// may have one only, as PRAGMA data_version does. A file system that is late with times
// makes it late, too.
func (d *DB) Listen(ctx context.Context, _ []string, ready func(), notified func(channel, payload string)) error {
	file := d.file.Load()
	if file == nil {
		return fmt.Errorf("%w: the database is not in a file", databases.ErrNoNotifications)
	}

	last := seen(file.path)

	ready()

	tick := time.Tick(lookEvery)

	var again time.Time // to notify, though nothing is seen to have changed

	for {
		select {
		case <-tick:
		case <-ctx.Done():
			return ctx.Err()
		}

		switch now := seen(file.path); {
		case now != last:
			last, again = now, time.Now().Add(settle)

			notified("", "")
		case !again.IsZero() && time.Now().After(again):
			again = time.Time{}

			notified("", "")
		}
	}
}

// files are what a commit changes: the database, or its write-ahead log.
type files [2]struct {
	changed time.Time
	size    int64
}

func seen(path string) (f files) {
	for i, name := range []string{path, path + "-wal"} {
		if info, err := os.Stat(name); err == nil {
			f[i].changed, f[i].size = info.ModTime(), info.Size()
		}
	}

	return f
}
