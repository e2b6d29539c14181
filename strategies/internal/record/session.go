package record

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/sqllock"
)

// IdleLimit is a lease as the server's limit on idle sessions has it, never
// shorter: PostgreSQL's as text in milliseconds, MySQL's in seconds.
func IdleLimit(d databases.Dialect, lease time.Duration) any {
	if d == databases.Postgres {
		return fmt.Sprint(roundUp(lease, time.Millisecond))
	}

	return roundUp(lease, time.Second)
}

func roundUp(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

// manyPrimaries finds servers on which each of several nodes grants a session's
// lock by itself: Galera, and a replication group with several primaries.
var manyPrimaries = map[databases.Dialect]databases.Statement{
	databases.MySQL: {
		Name: "record.many-primaries",
		SQL: `SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
    OR (Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF')`,
	},
}

// RefuseManyPrimaries returns ErrUnsupported on a server whose locks of a
// session hold on one node only. It asks once.
func (s *Store) RefuseManyPrimaries(ctx context.Context, on databases.Session) error {
	statement, ok := manyPrimaries[s.Dialect()]
	if !ok || s.onePrimary.Load() {
		return nil
	}

	var variable, value string

	err := on.Query(ctx, statement, nil, func(row databases.Row) error { return row(&variable, &value) })

	switch {
	case err != nil:
		return err
	case variable != "":
		return fmt.Errorf("strategy %s: %w on a server with %s=%s, where its locks hold on one node only; use strategies/cas",
			s.strategy, sqllock.ErrUnsupported, variable, value)
	}

	s.onePrimary.Store(true)

	return nil
}
