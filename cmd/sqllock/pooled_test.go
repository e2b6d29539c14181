package main

import (
	"strings"
	"testing"
)

// TestCommandsBehindProxy runs commands through proxies that give a session to
// another client with each transaction, and know no prepared statements.
func TestCommandsBehindProxy(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		servers int
		byTurns bool
	}{{"one server session", 1, false}, {"the latest first", 4, false}, {"by turns of three", 3, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			direct := freshDatabase(t, "postgres")
			url := pooling(t, direct, c.servers, c.byTurns)

			for range 3 {
				for _, command := range []struct {
					args string
					code int
				}{
					{"migrate up", 0},
					{"migrate status", 0},
					{"run --name a true", 0},
					{"run --name a --strategy insert true", 0},
					{"run --name a --strategy forupdate true", 0}, // keeps a session of the server
					{"run --name a --name b true", 0},
					{"ls", 0},
					{"show a", exitNotHeld},
					{"wait a", 0},
					{"free none --reason x", exitNotHeld},
					{"reap", 0},
					{"migrate down --all", 0},
				} {
					if c.servers == 1 && strings.Contains(command.args, "forupdate") {
						continue
					}

					run(t, url, strings.Fields(command.args)...).want(command.code)
				}
			}

			db := openDatabase(t, t.Context(), direct)
			defer db.Close()

			var left int

			const locks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
			if err := db.SQL.QueryRowContext(t.Context(), locks).Scan(&left); err != nil || left != 0 {
				t.Errorf("%d locks of sessions are left behind (%v), want 0", left, err)
			}
		})
	}
}
