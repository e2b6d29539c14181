package outsider

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
)

// endSession ends the session that holds a lock, as an operator does. It is found by the lock, so that it is no
// session of anybody else.
func (o Outsider) endSession(t *testing.T, name string) {
	t.Helper()

	if o.Dialect == databases.MySQL {
		o.endMySQL(t, name)
	} else {
		o.endPostgres(t, name)
	}
}

func (o Outsider) endPostgres(t *testing.T, name string) {
	t.Helper()

	var (
		query string
		arg   any = name
	)

	switch o.Strategy {
	case "forupdate":
		query = `SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(a.pid, 5000)) FROM pg_stat_activity a
			JOIN sqllock_locks l ON a.application_name = 'sqllock:' || l.owner WHERE l.name = $1`
	case "advisory":
		var table string
		o.fail(t, o.DB.QueryRowContext(t.Context(), `SELECT 'sqllock_locks'::regclass::oid::text`).Scan(&table))

		sum := sha256.Sum256([]byte("sqllock\x00" + table + "\x00" + name))
		arg = int64(binary.BigEndian.Uint64(sum[:8])) //nolint:gosec // the key is signed, and has the same bits
		query = `SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(pid, 5000)) FROM pg_locks
			WHERE locktype = 'advisory' AND granted AND objsubid = 1
			  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
			  AND (classid::bigint << 32) | objid::bigint = $1::bigint`
	}

	var ended int
	o.fail(t, o.DB.QueryRowContext(t.Context(), query, arg).Scan(&ended))

	if ended != 1 {
		o.fail(t, fmt.Errorf("ended %d sessions that hold %q, want 1", ended, name))
	}
}

// killTime is how long the locks of a session that was killed may last.
const killTime = 5 * time.Second

func (o Outsider) endMySQL(t *testing.T, name string) {
	t.Helper()

	query, arg := "SELECT IS_USED_LOCK(CONCAT('sqllock:', CONVERT(owner USING utf8mb4))) FROM sqllock_leases WHERE name = ?", o.name(name)

	if o.Strategy == "advisory" {
		var database string
		o.fail(t, o.DB.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database))

		sum := sha256.Sum256([]byte("sqllock\x00" + database + "\x00" + name))
		query, arg = "SELECT IS_USED_LOCK(?)", "sqllock:"+hex.EncodeToString(sum[:20])
	}

	session := func() (id sql.NullInt64, err error) {
		err = o.DB.QueryRowContext(context.WithoutCancel(t.Context()), query, arg).Scan(&id)

		return id, err
	}

	id, err := session()
	o.fail(t, err)

	if !id.Valid {
		o.fail(t, fmt.Errorf("no session holds %q", name))
	}

	o.exec(t, fmt.Sprintf("KILL %d", id.Int64))

	// The locks of a killed session go with its thread, a moment later. Another
	// session that waited may have them at once.
	for deadline := time.Now().Add(killTime); ; {
		used, err := session()
		o.fail(t, err)

		if used != id {
			return
		}

		if time.Now().After(deadline) {
			o.fail(t, fmt.Errorf("session %d still holds %q", used.Int64, name))
		}
	}
}
