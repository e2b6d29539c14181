package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

// verifySession asks for settings of a session under which statements about locks
// fail, or mean something else. A LIMIT of its own goes before sql_select_limit.
var verifySession = databases.Statement{
	Name: "mysql.verify-session",
	SQL: `SELECT @@character_set_client, @@character_set_connection, @@sql_mode, @@sql_safe_updates, @@sql_select_limit < 1000,
       NOT @@sql_big_selects AND @@max_join_size < 1000000, @@completion_type, ` + micros + ` LIMIT 1`,
}

// micros is the clock that leases are counted by: that of the start of the
// statement, or what the session's variable timestamp is set to.
const micros = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// verifyClock tells the clock of its start, and leaves some time before the next one.
var verifyClock = databases.Statement{
	Name: "mysql.verify-clock",
	SQL:  `SELECT ` + micros + `, SLEEP(0.02) LIMIT 1`,
}

// verifyLog asks for what makes a binary log of statements: both of these, if it is there and of statements alone.
var verifyLog = databases.Statement{
	Name: "mysql.verify-log",
	SQL: `SHOW SESSION VARIABLES WHERE Variable_name = 'log_bin' AND Value = 'ON'
    OR Variable_name = 'binlog_format' AND Value = 'STATEMENT'`,
}

// logged reports a server whose replicas run the statements of a session themselves. By their own clocks and row locks
// they come to other tokens and owners, and say nothing of it (seen on MariaDB), so that after a fail-over two can
// hold a lock.
func logged(ctx context.Context, s databases.Session) error {
	said := 0

	_, err := s.Run(ctx, verifyLog, nil, func(row databases.Row) error {
		said++

		return row(new(string), new(string))
	})
	if err != nil || said < 2 {
		return err
	}

	return &databases.ServerError{
		Found: "binlog_format is STATEMENT, with which replicas come to other tokens and owners", Fix: "set binlog_format=ROW, or MIXED",
	}
}

// strange are character sets in which digits take several bytes, or brackets are
// letters.
var strange = []string{"ucs2", "utf16", "utf16le", "utf32", "swe7"}

// suits reports a session whose settings do not suit, as the DSN, init_connect or
// the server's options made it. What its clock showed before is given.
func suits(ctx context.Context, s databases.Session, mariaDB bool, before int64) error {
	var (
		client, connection, mode, completion string
		safe, few, small                     bool
		clock                                int64
	)

	_, err := s.Run(ctx, verifySession, nil, func(row databases.Row) error {
		return row(&client, &connection, &mode, &safe, &few, &small, &completion, &clock)
	})
	if err != nil {
		return err
	}

	stopped, err := stands(ctx, s, before, clock)
	if err != nil {
		return err
	}

	because := func(what, fix string) error {
		return &databases.ServerError{Found: what, Fix: fix}
	}

	switch {
	case slices.Contains(strange, client), slices.Contains(strange, connection):
		return because(fmt.Sprintf("character_set_client is %s and character_set_connection %s, which do not write SQL as ASCII does",
			client, connection), "use utf8mb4, or any other than "+strings.Join(strange, ", "))
	case strings.Contains(mode, "EMPTY_STRING_IS_NULL"):
		return because("sql_mode has EMPTY_STRING_IS_NULL, and a free lock has an empty owner", "leave it out for these connections")
	case completion != "NO_CHAIN":
		return because("completion_type is "+completion+", so that a transaction of the application leaves another one open in "+
			"which a grant would be undone", "leave it out of the DSN and of the server's options")
	case stopped:
		return because("the session's clock stands still, because its variable timestamp is set", "leave it out of the DSN and of init_connect")
	case safe && mariaDB:
		return because("sql_safe_updates is on, with which MariaDB refuses updates of several locks", "set sql_safe_updates=0 in the DSN")
	case few:
		return because("sql_select_limit is below 1000, so that answers about many locks would be cut off", "leave it out of the DSN and of init_connect")
	case small:
		return because("max_join_size is below 1000000", "leave it out of the DSN and of init_connect, or set sql_big_selects=1")
	default:
		return nil
	}
}

// stands says whether the session's clock shows the same whenever it is asked, after it has shown two times. A
// clock that goes on may be coarse, or be set back between two looks, and not each
// time by as much as has passed.
func stands(ctx context.Context, s databases.Session, before, now int64) (stopped bool, err error) {
	for again := 3; now == before && err == nil && again > 0; again-- {
		_, err = s.Run(ctx, verifyClock, nil, func(row databases.Row) error { return row(&now, new(bool)) })
	}

	return now == before, err
}
