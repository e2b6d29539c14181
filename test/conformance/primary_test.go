package conformance_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// writes are what stands in statements that a load balancer has for writing.
var writes = regexp.MustCompile(`^(BEGIN|ROLLBACK|SET LOCAL|LISTEN|UNLISTEN|INSERT|UPDATE|DELETE)\b|\b(INSERT INTO|UPDATE \w+ \w+ ?\n? *SET|DELETE FROM|FOR (NO KEY )?UPDATE|FOR (KEY )?SHARE)\b`)

// called are functions.
var called = regexp.MustCompile(`pg_catalog\.(\w+)\(`)

// atPrimary checks that a proxy which balances load, as pgpool-II does, sends what was sent to the primary. It goes by the
// text of a statement, and sends one that only reads to any server, where it sees what was so a moment ago, unless it
// calls a volatile function (https://www.pgpool.net/docs/latest/en/html/runtime-config-load-balancing.html). What asks for
// the kind of server is the same on all.
func atPrimary(t *testing.T, config *pgx.ConnConfig, seen *sync.Map) {
	t.Helper()

	volatile := make(map[string]bool)

	rows, err := stdPool(t, config).QueryContext(context.WithoutCancel(t.Context()),
		"SELECT proname::text FROM pg_catalog.pg_proc WHERE provolatile = 'v' AND pronamespace = 'pg_catalog'::regnamespace")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = rows.Close() }()

	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}

		volatile[name] = true
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	seen.Range(func(statement, name any) bool {
		text := fmt.Sprint(statement)
		there := writes.MatchString(text) || name == "postgres.verify-kind"

		for _, call := range called.FindAllStringSubmatch(text, -1) {
			there = there || volatile[call[1]]
		}

		if !there {
			t.Errorf("%s can be sent to a standby: %s", name, strings.TrimSpace(text))
		}

		return true
	})
}
