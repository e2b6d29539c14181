package conformance_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/advisory"
	"github.com/sqllock/sqllock/strategies/cas"
)

// TestSessions locks awkward names in sessions with settings that change how SQL is
// read, or what of it is refused.
func TestSessions(t *testing.T) {
	t.Parallel()

	both := map[string]map[string]string{
		"no mode":     {"sql_mode": "''"},
		"backslashes": {"sql_mode": "'NO_BACKSLASH_ESCAPES'"},
		"ansi":        {"sql_mode": "'ANSI'"},
		"precedence":  {"sql_mode": "'HIGH_NOT_PRECEDENCE,PIPES_AS_CONCAT,IGNORE_SPACE,REAL_AS_FLOAT'"},
		"padded":      {"sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,NO_UNSIGNED_SUBTRACTION'"},
		"traditional": {"sql_mode": "'TRADITIONAL,ONLY_FULL_GROUP_BY,NO_AUTO_VALUE_ON_ZERO'"},
		"limited":     {"sql_select_limit": "1000", "max_join_size": "1000000", "sql_big_selects": "0"},
		"last id":     {"sql_auto_is_null": "1"},
		"time zone":   {"time_zone": "'-11:00'"},
		"optimizer":   {"optimizer_switch": "'derived_merge=off,materialization=off'"},
		"buffered":    {"sql_buffer_result": "1"},
		"numbers":     {"lc_time_names": "'de_DE'", "div_precision_increment": "0"},
	}
	own := map[string]map[string]map[string]string{
		"mysql": {
			"safe updates": {"sql_safe_updates": "1"},
			"truncated":    {"sql_mode": "'TIME_TRUNCATE_FRACTIONAL'"},
		},
		"mariadb": {
			"oracle":       {"sql_mode": "'ORACLE'"},
			"mssql":        {"sql_mode": "'MSSQL'"},
			"simultaneous": {"sql_mode": "'SIMULTANEOUS_ASSIGNMENT,STRICT_ALL_TABLES'"},
			"rounded":      {"sql_mode": "'TIME_ROUND_FRACTIONAL'"},
		},
	}

	for server, settings := range own {
		maps.Copy(settings, both)

		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			beside := mysqlPool(t, config)

			for _, name := range slices.Sorted(maps.Keys(settings)) {
				for _, interpolate := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/interpolate=%t", name, interpolate), func(t *testing.T) {
						t.Parallel()

						c := charsetCase{
							pool: withParameters(t, config, settings[name], interpolate), beside: beside,
							prefix: fmt.Sprintf("%s/%t/", name, interpolate), all: true,
						}
						c.together(t)
						c.alone(t)
					})
				}
			}
		})
	}
}

// TestSessionsRefused has settings under which statements would fail, or do
// something else.
func TestSessionsRefused(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		servers           []string
		name, value, says string
	}{
		{[]string{"mysql", "mariadb"}, "character_set_connection", "ucs2", "character_set_connection ucs2"},
		{[]string{"mysql", "mariadb"}, "collation_connection", "utf32_general_ci", "character_set_connection utf32"},
		{[]string{"mysql", "mariadb"}, "character_set_client", "swe7", "character_set_client is swe7"},
		{[]string{"mysql", "mariadb"}, "sql_select_limit", "0", "sql_select_limit"},
		{[]string{"mysql", "mariadb"}, "sql_select_limit", "999", "sql_select_limit"},
		{[]string{"mysql", "mariadb"}, "max_join_size", "1000", "max_join_size"},
		{[]string{"mysql", "mariadb"}, "completion_type", "CHAIN", "completion_type is CHAIN"},
		{[]string{"mysql", "mariadb"}, "timestamp", "1000000000", "timestamp is set"},
		{[]string{"mysql", "mariadb"}, "timestamp", "UNIX_TIMESTAMP()", "timestamp is set"},
		{[]string{"mysql", "mariadb"}, "timestamp", "UNIX_TIMESTAMP(NOW(6))", "timestamp is set"},
		{[]string{"mysql"}, "binlog_format", "'STATEMENT'", "binlog_format is STATEMENT"}, // here MariaDB has no binary log
		{[]string{"mariadb"}, "sql_safe_updates", "1", "sql_safe_updates"},
		{[]string{"mariadb"}, "sql_mode", "'EMPTY_STRING_IS_NULL'", "EMPTY_STRING_IS_NULL"},
	} {
		for _, server := range c.servers {
			t.Run(server+"/"+c.name+"="+c.value, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, mysqlConfig(t, server))
				pool := withParameters(t, config, map[string]string{c.name: c.value}, true)
				wantTry(t, cas.New(mysql.New(pool)), sqllock.ErrUnsupported, c.says)
			})
		}
	}
}

// TestSchemaOfAnyName has one key of an advisory lock for connections that are told
// the schema's name in different bytes.
func TestSchemaOfAnyName(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			config := mysqlDatabase(t, mysqlConfig(t, server))
			admin := mysqlPool(t, config)
			name := config.DBName + "_ä"

			exec(t, admin, "CREATE DATABASE `"+name+"`")
			t.Cleanup(func() { exec(t, admin, "DROP DATABASE `"+name+"`") })

			named := config.Clone()
			named.DBName = name
			named.ParseTime = true
			migrate(t, mysqlPool(t, named), databases.MySQL)

			// It comes through a handshake in UTF-8, and what is named later is told in latin1.
			told := withParameters(t, named, map[string]string{"character_set_results": "latin1"}, false)
			first, second := lockerOn(t, advisory.New(mysql.New(told))), lockerOn(t, advisory.New(mysql.New(mysqlPool(t, named))))

			if _, err := first.TryAcquire(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}

			// The lease is over, and the session is not.
			exec(t, mysqlPool(t, named), "UPDATE sqllock_leases SET owner = '', expires_at = 0")

			_, err := second.TryAcquire(t.Context(), "one")
			if !errors.Is(err, sqllock.ErrUnreachable) || !strings.Contains(err.Error(), "a session holds it") {
				t.Errorf("TryAcquire() beside a session that has the lock = %v, want one that tells of the session", err)
			}
		})
	}
}
