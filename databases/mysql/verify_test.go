package mysql_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
)

// server answers what Verify asks, as one of these would.
type server struct {
	version, comment string
	readOnly         bool
	unknown          bool // it has none of InnoDB's variables

	clock func() int64 // nil for one that goes on
}

func (s server) Run(
	_ context.Context, stmt databases.Statement, _ databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	if stmt.Name == "mysql.verify-log" {
		return result, nil // neither
	}

	shows := int64(0)

	switch {
	case s.clock != nil && stmt.Name != "mysql.verify-kind":
		shows = s.clock()
	case stmt.Name == "mysql.verify-session":
		shows = 1
	}

	values := map[string][]any{
		"mysql.verify-kind":     {s.version},
		"mysql.verify-writable": {s.comment, s.readOnly, true, shows},
		"mysql.verify-session":  {"utf8mb4", "utf8mb4", "", false, false, false, "NO_CHAIN", shows},
		"mysql.verify-clock":    {shows, false},
	}[stmt.Name]

	switch {
	case values == nil:
		return result, errors.New("asked for " + stmt.Name)
	case s.unknown && stmt.Name == "mysql.verify-writable":
		return result, &driver.MySQLError{Number: 1193, Message: "Unknown system variable 'innodb_read_only'"}
	}

	return result, each(func(dest ...any) error {
		for i := range dest {
			switch to := dest[i].(type) {
			case *string:
				*to, _ = values[i].(string)
			case *bool:
				*to, _ = values[i].(bool)
			case *int64:
				*to, _ = values[i].(int64)
			}
		}

		return nil
	})
}

// TestVerifyByName has what these servers answered to others, who wrote it down.
func TestVerifyByName(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		version, comment string
		want             string // a part of the refusal; empty if it is admitted
	}{
		{"9.7.4", "MySQL Community Server - GPL", ""},
		{"8.0.11", "MySQL Community Server - GPL", ""},
		{"8.4.6", "", ""},
		{"8.0.36-0ubuntu0.22.04.1", "(Ubuntu)", ""},
		{"9.1.0-cloud", "MySQL Enterprise - Cloud", ""},
		{"8.0.36-28", "Percona Server (GPL), Release 28, Revision 47601f19", ""},
		{"8.0.36-28.1", "Percona XtraDB Cluster (GPL), Release rel28, Revision bfb687f, WSREP version 26.1.4.3", ""},
		{"8.0.35", "Source distribution", ""},                // Amazon RDS
		{"8.0.28", "Source distribution", ""},                // Aurora MySQL 3
		{"8.0.37-azure", "MySQL Community Server - GPL", ""}, // Azure
		{"8.0.31-google", "(Google)", ""},                    // Cloud SQL
		{"8.0.32-X-Cluster-8.4.20-20251017", "MySQL Community Server - GPL", ""},
		{"11.8.6-MariaDB-ubu2404", "mariadb.org binary distribution", ""},
		{"10.11.11-MariaDB-0+deb12u1-log", "Debian 12", ""},
		{"10.6.21-MariaDB", "Source distribution", ""},
		{"5.5.5-10.6.12-MariaDB-log", "mariadb.org binary distribution", ""},

		{"5.7.44-log", "MySQL Community Server (GPL)", "MySQL 5.7.44-log is too old"},
		{"5.7.44-48", "Percona Server (GPL), Release 48", "MySQL 5.7.44-48 is too old"},
		{"10.5.23-MariaDB-0+deb11u1", "Debian 11", "MariaDB 10.5.23-MariaDB-0+deb11u1 is too old"},
		{"5.5.5-10.5.29-MariaDB", "", "is too old"},

		{"8.0.11-TiDB-v8.5.3", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible", "use tidb.New"},
		{"8.0.40", "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible", "it is TiDB"}, // server-version is set
		{"8.0.30-Vitess", "Version: 18.0.0-SNAPSHOT (Git revision 122ee758cf4f20f20e8703fcb21dea93765e3e2b branch 'main')", "it is Vitess"},
		{"8.0.40", "Version: 21.0.3 (Git revision 42a3ba6 branch 'HEAD') built on Thu Feb 27 2025", "it is Vitess"}, // mysql_server_version is set
		{"8.0.23-PlanetScale", "", "it is PlanetScale"},
		{"5.7.25-OceanBase_CE-v4.4.2.1", "OceanBase_CE 4.4.2.1 (r101000022026050611-8cf64ed5) (Built May 6 2026 12:21:55)", "it is OceanBase"},
		{"5.7.25", "OceanBase seekdb (r1.1.0.0)", "it is OceanBase"},
		{"5.7.25-TDDL-5.4.19-20251031", "", "it is PolarDB-X"},
		{"5.6.29-PXC-5.4.19-SNAPSHOT", "", "it is PolarDB-X"},
		{"8.0.32", "Tddl Server (ALIBABA)", "it is PolarDB-X"},
		{"5.7.99", "Doris version doris-2.1.7-rc03-443e87e203", "it is Apache Doris"},
		{"8.0.40", "Doris version doris-3.0.3", "it is Apache Doris"},
		{"8.0.33", "StarRocks version 3.1.2", "it is StarRocks"},
		{"5.1.0", "StarRocks version 2.1.2", "it is StarRocks"},
		{"24.8.4.13", "", `it calls itself "24.8.4.13"`}, // ClickHouse
		{"5.7.30-ClickHouse-20.8.2.3", "", "it is ClickHouse"},
		{"8.0.33", "Dolt", "it is Dolt"},
		{"8.0.33", "SingleStoreDB source distribution (compatible; MySQL Enterprise & MySQL Commercial)", "it is SingleStore"},
		{"5.0.45-Xpand-6.1.1", "", "it is MariaDB Xpand"},
		{"8.0.30-MatrixOne-v1.2.0", "MatrixOne", "it is MatrixOne"},
		{"8.4.2-GreptimeDB-1.1.4", "Greptime", "it is GreptimeDB"},
		{"PostgreSQL 17.2", "", "it calls itself"},
		{"", "", "it calls itself"},
	} {
		for _, readOnly := range []bool{false, true} {
			err := mysql.New(nil).Verify(t.Context(), server{version: c.version, comment: c.comment, readOnly: readOnly})

			// Whoever may only look has to know that the rest is right.
			switch {
			case c.want != "":
				if !errors.Is(err, databases.ErrWrongServer) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%q %q: %v, want a refusal that says %q", c.version, c.comment, err, c.want)
				}
			case readOnly && !errors.Is(err, databases.ErrReadOnly), !readOnly && err != nil:
				t.Errorf("%q %q: %v, read-only %t", c.version, c.comment, err, readOnly)
			}

			if err := mysql.New(nil).AllowUntested().Verify(t.Context(), server{version: c.version, comment: c.comment}); err != nil {
				t.Errorf("%q %q: %v, though untested servers are allowed", c.version, c.comment, err)
			}
		}
	}
}

func TestVerifyWithoutInnoDB(t *testing.T) {
	t.Parallel()

	err := mysql.New(nil).Verify(t.Context(), server{version: "8.0.40-SomethingElse", unknown: true})
	if !errors.Is(err, databases.ErrWrongServer) || !strings.Contains(err.Error(), "no InnoDB") {
		t.Error(err)
	}
}

// TestVerifyClock has what a session's clock shows, statement by statement, and then
// the last of it for ever.
func TestVerifyClock(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name    string
		shows   []int64
		looks   int
		refused bool
	}{
		{"it goes on", []int64{1000, 1001}, 2, false},
		{"the server took a minute for a statement", []int64{1000, 61_001_000}, 2, false},
		{"it was set back", []int64{1000, 900}, 2, false},
		{"it was set back by what had passed", []int64{1000, 1000, 1001}, 3, false},
		{"it is coarse, and the connection fast", []int64{1000, 1000, 1000, 16_600}, 4, false},
		{"it is set back again and again", []int64{1000, 1000, 1000, 1000, 999}, 5, false},
		{"it stands still", []int64{1000}, 5, true},
		{"it stands at the year 1970", []int64{0}, 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()

			looks := 0
			clock := func() int64 {
				looks++

				return c.shows[min(looks, len(c.shows))-1]
			}

			err := mysql.New(nil).Verify(t.Context(), server{version: "8.4.0", clock: clock})

			switch {
			case c.refused && (!errors.Is(err, databases.ErrWrongServer) || !strings.Contains(err.Error(), "timestamp is set")):
				t.Errorf("Verify() = %v, want a refusal that names timestamp", err)
			case !c.refused && err != nil:
				t.Errorf("Verify() = %v, want nil", err)
			case looks != c.looks:
				t.Errorf("Verify() looked at the clock %d times, want %d", looks, c.looks)
			}
		})
	}
}
