//go:build unix

package stress

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/test/servers"
)

// host is the database of a pair on a server that can be crashed.
type host struct {
	pair              Pair
	set               *servers.Set
	database          string // on the server; for SQLite, the file
	isolationVariable string
	machine           *stalls
	names             []string
	beside            *Revision // whose workers run beside ours, if any
}

// newHost makes the pair's database, under a name of its own.
func newHost(
	ctx context.Context, set *servers.Set, machine *stalls, pair Pair, label string, names []string, beside *Revision,
) (*host, error) {
	h := &host{
		pair: pair, set: set, machine: machine, database: "stress_" + pair.Engine + "_" + label, names: names, beside: beside,
	}

	if !pair.hasNetwork() {
		folder, err := os.MkdirTemp("", "sqllock-stress-")
		if err != nil {
			return nil, err
		}

		h.database = filepath.Join(folder, "locks.db")
	}

	if err := h.create(ctx); err != nil {
		return nil, err
	}

	return h, h.ask(ctx, func(db *sql.DB) (err error) {
		h.isolationVariable, err = h.place().isolationVariable(ctx, db)

		return err
	})
}

// create makes the database anew, with the tables of the revision beside ours, if there is one.
func (h *host) create(ctx context.Context) error {
	err := patiently(ctx, func() error { return createDatabase(ctx, h.place(), h.names, h.beside) })
	if err != nil {
		return fmt.Errorf("make a database for %s: %w", h.pair, err)
	}

	return nil
}

// place is where the database is at this moment, without any proxy.
func (h *host) place() place {
	if !h.pair.hasNetwork() {
		return place{Engine: h.pair.Engine, DSN: h.database}
	}

	return place{Engine: h.pair.Engine, DSN: h.set.DSN(h.pair.Engine), Database: h.database}
}

// address is where the server listens at this moment.
func (h *host) address(ctx context.Context) string {
	if near := h.set.Near(ctx, h.pair.Engine); near != "" {
		return near
	}

	p := h.place()

	if p.dialect() == databases.Postgres {
		if parsed, err := url.Parse(p.DSN); err == nil {
			return net.JoinHostPort(parsed.Hostname(), parsed.Port())
		}
	}

	if config, err := mysql.ParseDSN(p.DSN); err == nil {
		return config.Addr
	}

	return ""
}

// reset takes the application's data back to the beginning, for the next round, and tables that were migrated, too.
func (h *host) reset(ctx context.Context) error {
	if h.beside != nil {
		return h.create(ctx)
	}

	return h.ask(ctx, func(db *sql.DB) error {
		for _, query := range []string{
			"DELETE FROM stress_writes", "UPDATE stress_register SET value = 0", "UPDATE stress_accounts SET balance = 0",
		} {
			if _, err := db.ExecContext(ctx, query); err != nil {
				return err
			}
		}

		return nil
	})
}

// ask uses the database beside the locks, and again if that failed.
func (h *host) ask(ctx context.Context, f func(*sql.DB) error) error {
	return patiently(ctx, func() error { return inPool(h.place(), f) })
}

// drop removes the database. The server goes with the run, so that only a file would stay.
func (h *host) drop() error {
	if h.pair.hasNetwork() {
		return nil
	}

	return os.RemoveAll(filepath.Dir(h.database))
}
