package dsn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/sqlite"
)

// parseSQLite reads a path and parameters, which are those of modernc.org/sqlite.
func parseSQLite(path, query string) (Target, error) {
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return Target{}, errors.New("the parameters behind the ? cannot be read")
	}

	switch {
	case path == "":
		return Target{}, errors.New("the URL names no file: sqlite:path")
	case path == ":memory:" || parameters.Get("mode") == "memory":
		return Target{}, errors.New("an SQLite database in memory is seen by no other process; name a file: sqlite:path")
	}

	return sqliteFile(path, parameters), nil
}

func sqliteFile(path string, parameters url.Values) Target {
	// Every process at the file needs these. The busy timeout comes first, so that the
	// switch to WAL waits for others too. FULL keeps a commit that was acknowledged over
	// a power cut, which locks depend on; WAL's default is not to
	// (https://www.sqlite.org/pragma.html#pragma_synchronous).
	pragmas := []string{"busy_timeout(2000)", "journal_mode(WAL)", "synchronous(FULL)"}

	// Not those that the user sets: the driver does not keep their order.
	given := parameters["_pragma"]
	own := slices.DeleteFunc(pragmas, func(pragma string) bool {
		return slices.ContainsFunc(given, func(g string) bool { return pragmaName(g) == pragmaName(pragma) })
	})
	parameters["_pragma"] = append(own, given...)

	if !parameters.Has("_txlock") {
		// A transaction that begins as a reader cannot become a writer once
		// another has written, whatever the busy timeout.
		parameters.Set("_txlock", "immediate")
	}

	shown := "sqlite:" + path
	if strings.HasPrefix(path, "//") {
		// Or the start of the path would be taken for that of a host.
		shown = "sqlite://" + path
	}

	return Target{
		Dialect: databases.SQLite, Path: path, shown: shown,
		driver: "file:" + uriPath(path) + "?" + parameters.Encode(),
	}
}

// pragmaName is that of "name(value)" or "name=value".
func pragmaName(pragma string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(pragma, "=", "("), "(")

	return strings.ToLower(strings.TrimSpace(name))
}

// uriPath escapes what has a meaning in SQLite's URI file names
// (https://www.sqlite.org/uri.html).
func uriPath(path string) string {
	path = filepath.ToSlash(path)

	if filepath.VolumeName(path) != "" {
		path = "/" + path // file:/C:/folder
	}

	return (&url.URL{Path: path}).EscapedPath()
}

// withoutHost takes //, //localhost and nothing off the path of a file URL, and
// the escapes out of it.
func withoutHost(path string) string {
	path = strings.TrimPrefix(strings.Replace(path, "//localhost/", "///", 1), "//")

	if plain, err := url.PathUnescape(path); err == nil {
		return plain
	}

	return path
}

func openSQLite(ctx context.Context, t Target, create bool) (*Database, error) {
	if err := sqliteFolder(t, create); err != nil {
		return nil, err
	}

	if t.looking {
		t.driver = keepJournal(t.driver)
	}

	std, err := sql.Open("sqlite", t.driver)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", t, err)
	}

	locks := sqlite.New(std)

	if err := settle(ctx, std, locks); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", t, err), std.Close())
	}

	return &Database{Target: t, Locks: locks, SQL: std, close: std.Close}, nil
}

// sqliteFolder keeps a misspelled path from becoming an empty database.
func sqliteFolder(t Target, create bool) error {
	switch {
	case t.Embedded && !t.looking:
		if err := os.MkdirAll(filepath.Dir(t.Path), 0o700); err != nil {
			return fmt.Errorf("make the folder of %s: %w", t, err)
		}
	case create:
		if _, err := os.Stat(filepath.Dir(t.Path)); err != nil {
			return fmt.Errorf("no folder for %s: %w", t, err)
		}
	default:
		if _, err := os.Stat(t.Path); err != nil {
			return fmt.Errorf("no database %s (%w); to make it, run: %s", t, errors.Unwrap(err), t.MigrateCommand())
		}
	}

	return nil
}

// keepJournal takes out of a DSN what would bring the file into another journal
// mode.
func keepJournal(driver string) string {
	path, query, _ := strings.Cut(driver, "?")
	parameters, _ := url.ParseQuery(query) // which sqliteFile has encoded
	parameters["_pragma"] = slices.DeleteFunc(parameters["_pragma"], func(pragma string) bool {
		return strings.HasPrefix(strings.ToLower(strings.TrimSpace(pragma)), "journal_mode")
	})

	return path + "?" + parameters.Encode()
}

// settleTime is how long processes that open a new file at the same moment
// may take to agree on its journal mode.
const settleTime = 5 * time.Second

// settle opens a connection. The switch of a new file to WAL answers "locked"
// at once, whatever the busy timeout, where waiting would be a deadlock.
func settle(ctx context.Context, std *sql.DB, locks *sqlite.DB) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()

	for {
		err := std.PingContext(ctx)
		if err == nil || locks.Classify(err) != databases.Busy {
			return err
		}

		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
