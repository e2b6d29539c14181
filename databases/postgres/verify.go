package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sqllock/sqllock/databases"
)

var (
	// Alone, because it is all that servers of another kind have in common.
	verifyKind = databases.Statement{
		Name: "postgres.verify-kind",
		SQL:  `SELECT pg_catalog.version()`,
	}
	// Some servers pass for PostgreSQL and name themselves here only.
	//
	// Aurora DSQL has a schema of its own
	// (https://docs.aws.amazon.com/aurora-dsql/latest/userguide/working-with-systems-tables.html). Spanner's
	// proxy has settings of its own (https://github.com/GoogleCloudPlatform/pgadapter). YDB tells its whole
	// version() as server_version, which is a number on PostgreSQL.
	verifyWritable = databases.Statement{
		Name: "postgres.verify-writable",
		SQL: `SELECT CASE WHEN pg_catalog.to_regclass('sys.iam_pg_role_mappings') IS NOT NULL THEN 'Aurora DSQL'
            WHEN pg_catalog.current_setting('spanner.ddl_transaction_mode', true) IS NOT NULL THEN 'Spanner'
            WHEN pg_catalog.starts_with(pg_catalog.current_setting('server_version'), 'PostgreSQL') THEN 'YDB'
            ELSE '' END, pg_catalog.pg_is_in_recovery(),
       pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('client_encoding')`,
	}
)

// Verify reports a server that is no PostgreSQL, or too old; a database or a session that is not in UTF-8;
// and, after all of that, a standby.
//
// Names are written in UTF-8 here. In another encoding programs write different bytes for one name, and it would
// be two: a database in SQL_ASCII takes any, and one in LATIN1 converts what a session
// says to be UTF-8, and does not what it says to be LATIN1
// (https://www.postgresql.org/docs/current/multibyte.html).
func (d *DB) Verify(ctx context.Context, s databases.Session) error {
	var version string

	_, err := s.Run(ctx, verifyKind, nil, func(row databases.Row) error { return row(&version) })

	switch {
	case err != nil && foreign(err):
		return &databases.ServerError{Found: "it does not know PostgreSQL's pg_catalog.version()", Err: err}
	case err != nil:
		return err
	}

	if err := d.suits(version); err != nil {
		return err
	}

	var (
		other, server, client string
		standby               bool
	)

	_, err = s.Run(ctx, verifyWritable, nil, func(row databases.Row) error { return row(&other, &standby, &server, &client) })

	switch {
	case err != nil && foreign(err):
		return &databases.ServerError{Found: fmt.Sprintf("it calls itself %q and lacks functions of PostgreSQL", version), Err: err}
	case err != nil:
		return err
	case other != "" && !d.untested:
		return &databases.ServerError{Found: fmt.Sprintf("it is %s (%s), %s", other, version, distributed), Untested: true}
	case server != "UTF8":
		return &databases.ServerError{
			Found: "server_encoding is " + server + ", in which one name could be two", Fix: "create the database with ENCODING 'UTF8'",
		}
	case client != "UTF8":
		return &databases.ServerError{
			Found: "client_encoding is " + client + ", and names are sent in UTF-8",
			Fix:   "leave it out of the DSN, of PGCLIENTENCODING and of the settings of role and database",
		}
	case standby:
		return fmt.Errorf("%w: it is a standby; connect to the primary (target_session_attrs=read-write)",
			databases.ErrReadOnly)
	default:
		return nil
	}
}

// foreign says whether an error is a statement's of another database rather than
// that of a broken connection.
func foreign(err error) bool {
	text, state := strings.ToLower(err.Error()), answerOf(err).state

	if state == "" {
		return strings.Contains(text, "no such function") || strings.Contains(text, "does not exist") || strings.Contains(text, "syntax error")
	}

	// Undefined function, table, column, schema, object; syntax error; not supported.
	return slices.Contains([]string{"42883", "42P01", "42703", "3F000", "42704", "42601", "0A000"}, state)
}

// stranger is a server that speaks PostgreSQL's protocol and is another product.
type stranger struct {
	mark, name, why string
}

// strangers, by what stands in version(), in lower case. Amazon RDS and Aurora,
// Azure, Cloud SQL, AlloyDB, Neon, Supabase, EnterpriseDB, Citus and TimescaleDB
// are PostgreSQL, and call themselves so.
var strangers = []stranger{
	// PostgreSQL 15.12-YB-2.25.2.0-b0 on x86_64-pc-linux-gnu, ...
	{"-yb-", "YugabyteDB", distributed},
	// PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 (Red Hat 3.4.2-6.fc3), Redshift 1.0.77467
	{"redshift", "Amazon Redshift", analytic},
	// PostgreSQL 9.4.26 (Greenplum Database 6.25.3 build commit:367edc6...) on x86_64-unknown-linux-gnu, ...
	{"greenplum", "Greenplum", distributed},
	// PostgreSQL 14.4 (Apache Cloudberry 2.0.0 build ...)
	{"cloudberry", "Apache Cloudberry", distributed},
	// PostgreSQL 9.5 on x86_64-unknown-linux-gnu (Materialize v0.26.1)
	{"materialize", "Materialize", analytic},
	// PostgreSQL 13.14.0-RisingWave-2.3.2 (58c5893670f326f0922b9bc58c61c83cabeccaa8)
	{"risingwave", "RisingWave", analytic},
	// PostgreSQL 12.3, compiled by Visual C++ build 1914, 64-bit, QuestDB
	// https://questdb.com/docs/reference/function/meta/#version
	{"questdb", "QuestDB", analytic},
	// CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)
	{"cockroachdb", "CockroachDB", distributed},
	// PostgreSQL 9.2.4 (openGauss 5.0.0 build a07d57c3) compiled at ...
	{"opengauss", "openGauss", "which is a fork of PostgreSQL 9.2"},
	// PostgreSQL 14.5 (ydb stable-23-4)
	{"(ydb ", "YDB", distributed},
	// CrateDB 5.7.2 (built ...)
	{"cratedb", "CrateDB", analytic},
	// PostgreSQL 16.3-greptimedb-0.9.1
	{"greptime", "GreptimeDB", analytic},
}

const (
	distributed = "which keeps rows, their locks and clocks on several nodes, and was not tried"
	analytic    = "which has no transactions that lock rows"
)

// least is the first version that the library is for.
const least = 13

// suits judges a server by what it calls itself.
func (d *DB) suits(version string) error {
	if d.untested {
		return nil
	}

	for _, other := range strangers {
		if strings.Contains(strings.ToLower(version), other.mark) {
			return &databases.ServerError{Found: fmt.Sprintf("it is %s (%s), %s", other.name, version, other.why), Untested: true}
		}
	}

	var major int
	if _, err := fmt.Sscanf(version, "PostgreSQL %d", &major); err != nil {
		return &databases.ServerError{Found: fmt.Sprintf("it calls itself %q, not PostgreSQL", version), Untested: true}
	}

	if major < least {
		return &databases.ServerError{
			Found: version + " is too old, and was not tried", Fix: fmt.Sprintf("use PostgreSQL %d or later", least), Untested: true,
		}
	}

	return nil
}
