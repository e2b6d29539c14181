package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
)

var (
	verifyKind = databases.Statement{
		Name: "mysql.verify-kind",
		SQL:  `SELECT VERSION() LIMIT 1`,
	}
	// Some servers name themselves here only.
	//
	// A replica is read_only as a rule, and a lock there would be no lock for
	// those who connect to the primary. Without autocommit a grant would be
	// rolled back with its connection.
	verifyWritable = databases.Statement{
		Name: "mysql.verify-writable",
		SQL: `SELECT @@version_comment, @@global.read_only OR @@global.innodb_read_only, @@session.autocommit,
       ` + micros + ` LIMIT 1`,
	}
)

// Verify reports a server that is neither MySQL nor MariaDB, or too old, or set
// up so that locks cannot be kept; and, after all of that, one that is
// read-only.
func (d *DB) Verify(ctx context.Context, s databases.Session) error {
	var version string

	_, err := s.Run(ctx, verifyKind, nil, func(row databases.Row) error { return row(&version) })

	switch {
	case err != nil && strings.Contains(strings.ToLower(err.Error()), "no such function"):
		return &databases.ServerError{Found: "it has no VERSION(), as MySQL and MariaDB have", Err: err}
	case err != nil:
		return err
	}

	// Some do not even know the variables below.
	if err := d.named(version, ""); err != nil {
		return err
	}

	var (
		comment              string
		readOnly, autocommit bool
		clock                int64
	)

	_, err = s.Run(ctx, verifyWritable, nil, func(row databases.Row) error {
		return row(&comment, &readOnly, &autocommit, &clock)
	})

	switch {
	case errors.Is(err, errUnknownVariable):
		return &databases.ServerError{Found: version + " has no InnoDB, whose row locks and transactions are needed", Err: err}
	case err != nil:
		return err
	}

	if err := d.named(version, comment); err != nil {
		return err
	}

	if err := d.recent(version, comment); err != nil {
		return err
	}

	d.mariadb.Store(isMariaDB(version, comment))

	if err := suits(ctx, s, isMariaDB(version, comment), clock); err != nil {
		return err
	}

	if err := logged(ctx, s); err != nil {
		return err
	}

	switch {
	case !autocommit:
		return &databases.ServerError{Found: "autocommit is off", Fix: "leave autocommit=0 out of the DSN and of init_connect"}
	case readOnly:
		return fmt.Errorf("%w: read_only is on; connect to the primary", databases.ErrReadOnly)
	default:
		return nil
	}
}

// errUnknownVariable is the error of a server that has no variable of that name.
var errUnknownVariable = &mysql.MySQLError{Number: 1193}

// stranger is a server that speaks MySQL's protocol and is another product.
type stranger struct {
	mark, name, why string
}

// strangers, by what stands in VERSION() or in @@version_comment, in lower case.
var strangers = []stranger{
	// 8.0.11-TiDB-v8.5.3, "TiDB Server (Apache License 2.0) ...": tried.
	// https://github.com/pingcap/tidb/issues/69720, https://github.com/pingcap/tidb/issues/70996
	{"tidb", "TiDB", "which takes SKIP LOCKED and ignores it, and locks no row outside a transaction"},
	// 8.0.30-Vitess, 8.0.23-PlanetScale, "Version: 18.0.0 (Git revision ...)"
	// https://vitess.io/docs/reference/compatibility/mysql-compatibility/
	{"vitess", "Vitess", vitess},
	{"planetscale", "PlanetScale", vitess},
	{"(git revision ", "Vitess", vitess},
	// 5.7.25-OceanBase_CE-v4.4.2.1, "OceanBase_CE 4.4.2.1 (r101000022026050611-...)"
	{"oceanbase", "OceanBase", distributed},
	// 5.7.25-TDDL-5.4.19-20251031, 5.6.29-PXC-5.4.19-SNAPSHOT, "Tddl Server (ALIBABA)". PolarDB for MySQL, and
	// the standard edition of PolarDB-X (8.0.32-X-Cluster-...), are MySQL. Percona's PXC does not say so in its version.
	{"-tddl-", "PolarDB-X", distributed},
	{"-pxc-5.", "PolarDB-X", distributed},
	{"tddl server", "PolarDB-X", distributed},
	// 5.7.99, "Doris version doris-2.1.7-rc03-443e87e203"
	{"doris version", "Apache Doris", analytic},
	// 5.1.0 or 8.0.33, "StarRocks version 3.1.2"
	// https://docs.starrocks.io/docs/sql-reference/sql-functions/utility-functions/current_version/
	{"starrocks", "StarRocks", analytic},
	{"clickhouse", "ClickHouse", analytic},
	// 5.7.32, "SingleStoreDB source distribution (compatible; MySQL Enterprise & MySQL Commercial)"
	// https://docs.singlestore.com/db/v9.1/connect-to-singlestore/connect-with-mysql/connect-with-mysql-client/
	{"singlestore", "SingleStore", distributed},
	{"memsql", "SingleStore", distributed},
	// 8.0.33, "Dolt", which is go-mysql-server's default: tried.
	// https://github.com/dolthub/go-mysql-server/blob/main/sql/variables/system_variables.go
	{"dolt", "Dolt", "where SELECT ... FOR UPDATE locks nothing"},
	// 5.0.45-Xpand-..., before that clustrix
	{"xpand", "MariaDB Xpand", distributed},
	// 8.0.30-MatrixOne-v1.2.0, 8.4.2-GreptimeDB-1.1.4, 8.0.26-v1.2.410-nightly-... "Databend Query"
	{"matrixone", "MatrixOne", distributed},
	{"greptime", "GreptimeDB", analytic},
	{"databend", "Databend", analytic},
}

// others are what to use for those that have a package of their own.
var others = map[string]string{"TiDB": "use tidb.New, of package databases/tidb, or a URL that begins with tidb://"}

const (
	vitess      = "whose proxy rewrites statements and sends them to several servers, and was not tried"
	distributed = "which keeps rows, their locks and clocks on several nodes, and was not tried"
	analytic    = "which has no transactions that lock rows"
)

// least are the first versions that have what the statements need.
var least = map[string][]int{"MySQL": {8, 0}, "MariaDB": {10, 6}}

// numbers reads those that a version begins with.
// A MariaDB that passes for an old MySQL to replicas says 5.5.5-10.6.12-MariaDB
// (https://mariadb.com/docs/server/reference/clientserver-protocol/1-connecting/connection#initial-handshake-packet).
func numbers(version string) []int {
	n := make([]int, 4)
	found, _ := fmt.Sscanf(strings.TrimPrefix(version, "5.5.5-"), "%d.%d.%d.%d", &n[0], &n[1], &n[2], &n[3])

	return n[:found]
}

// named reports another product, by what it calls itself.
func (d *DB) named(version, comment string) error {
	if d.untested {
		return nil
	}

	said := strings.ToLower(version + " " + comment)

	for _, other := range strangers {
		if strings.Contains(said, other.mark) {
			fix := others[other.name]

			return &databases.ServerError{
				Found: fmt.Sprintf("it is %s (%s), %s", other.name, version, other.why), Fix: fix, Untested: fix == "",
			}
		}
	}

	// ClickHouse calls itself 24.8.4.13, and MySQL and MariaDB have three numbers.
	if found := len(numbers(version)); found < 2 || found > 3 {
		return &databases.ServerError{Found: fmt.Sprintf("it calls itself %q, not MySQL or MariaDB", version), Untested: true}
	}

	return nil
}

func isMariaDB(version, comment string) bool {
	return strings.Contains(strings.ToLower(version+comment), "mariadb")
}

// recent reports a version that is too old.
func (d *DB) recent(version, comment string) error {
	kind := "MySQL"
	if isMariaDB(version, comment) {
		kind = "MariaDB"
	}

	need := least[kind]
	if d.untested || slices.Compare(numbers(version), need) >= 0 {
		return nil
	}

	return &databases.ServerError{
		Found: fmt.Sprintf("%s %s is too old: it has no SKIP LOCKED", kind, version),
		Fix:   fmt.Sprintf("use %s %d.%d or later", kind, need[0], need[1]),
	}
}
