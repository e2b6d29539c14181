package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/postgres"
)

// server answers what Verify asks, as one of these would.
type server struct {
	version, other string
	standby        bool
	lacks          bool // a function that PostgreSQL has
}

func (s server) Run(
	_ context.Context, stmt databases.Statement, _ databases.Values, each func(databases.Row) error,
) (result databases.Result, err error) {
	values := map[string][]any{
		"postgres.verify-kind":     {s.version},
		"postgres.verify-writable": {s.other, s.standby, "UTF8", "UTF8"},
	}[stmt.Name]

	switch {
	case values == nil:
		return result, errors.New("asked for " + stmt.Name)
	case s.lacks && stmt.Name == "postgres.verify-writable":
		return result, &pgconn.PgError{Code: "42883", Message: "function pg_catalog.to_regclass(unknown) does not exist"}
	}

	return result, each(func(dest ...any) error {
		for i := range dest {
			switch to := dest[i].(type) {
			case *string:
				*to, _ = values[i].(string)
			case *bool:
				*to, _ = values[i].(bool)
			}
		}

		return nil
	})
}

// TestVerifyByName has what these servers answered to others, who wrote it down.
func TestVerifyByName(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		version, other string
		want           string // a part of the refusal; empty if it is admitted
	}{
		{"PostgreSQL 17.11 (Debian 17.11-1.pgdg12+1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit", "", ""},
		{"PostgreSQL 13.0 on x86_64-pc-linux-musl, compiled by gcc (Alpine 9.3.0) 9.3.0, 64-bit", "", ""},
		{"PostgreSQL 19rc1 (Debian 19~rc1-1) on x86_64-pc-linux-gnu", "", ""},
		{"PostgreSQL 15.4 on x86_64-pc-linux-gnu, compiled by x86_64-pc-linux-gnu-gcc (GCC) 9.5.0, 64-bit", "", ""},                            // Amazon RDS, Aurora
		{"PostgreSQL 15.1 (Ubuntu 15.1-1.pgdg20.04+1) on aarch64-unknown-linux-gnu, compiled by gcc (Ubuntu 10.3.0) 10.3.0, 64-bit", "", ""},   // Supabase
		{"PostgreSQL 16.4 on x86_64-pc-linux-gnu, compiled by gcc (Debian 10.2.1-6) 10.2.1 20210110, 64-bit", "", ""},                          // Neon
		{"PostgreSQL 15.5 on x86_64-pc-linux-gnu, compiled by Debian clang version 12.0.1, 64-bit", "", ""},                                    // Cloud SQL, AlloyDB
		{"PostgreSQL 16.3 on x86_64-pc-linux-gnu, compiled by gcc (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0, 64-bit", "", ""},                      // Azure, Citus
		{"PostgreSQL 15.4 (EnterpriseDB Advanced Server 15.4.0) on x86_64-pc-linux-gnu, compiled by gcc (GCC) 8.5.0 20210514, 64-bit", "", ""}, // EnterpriseDB
		{"PostgreSQL 12.22 (Debian 12.22-1.pgdg120+1) on x86_64-pc-linux-gnu", "", "is too old"},
		{"PostgreSQL 9.6.24 on x86_64-pc-linux-gnu", "", "is too old"},
		{"PostgreSQL 15.12-YB-2.25.2.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 17.0.6", "", "it is YugabyteDB"},
		{"PostgreSQL 11.2-YB-2.6.1.0-b0 on x86_64-pc-linux-gnu, compiled by gcc (Homebrew gcc 5.5.0_4) 5.5.0, 64-bit", "", "it is YugabyteDB"},
		{"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017, Redshift 1.0.77467", "", "it is Amazon Redshift"},
		{"PostgreSQL 9.4.26 (Greenplum Database 6.25.3 build commit:367edc6b Open Source) on x86_64-unknown-linux-gnu", "", "it is Greenplum"},
		{"PostgreSQL 14.4 (Apache Cloudberry 2.0.0 build 1) on x86_64-pc-linux-gnu", "", "it is Apache Cloudberry"},
		{"PostgreSQL 9.5 on x86_64-unknown-linux-gnu (Materialize v0.26.1)", "", "it is Materialize"},
		{"PostgreSQL 13.14.0-RisingWave-2.3.2 (58c5893670f326f0922b9bc58c61c83cabeccaa8)", "", "it is RisingWave"},
		{"PostgreSQL 12.3, compiled by Visual C++ build 1914, 64-bit, QuestDB", "", "it is QuestDB"},
		{"PostgreSQL 16.9", "Aurora DSQL", "it is Aurora DSQL"},
		{"PostgreSQL 14.1", "Spanner", "it is Spanner"},
		{"PostgreSQL 16.10 on x86_64-pc-linux-gnu, compiled by clang", "YDB", "it is YDB"},
		{"CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)", "", "it is CockroachDB"},
		{"(openGauss 5.0.0 build a07d57c3) compiled at 2023-03-29 03:09:38 commit 0 last mr", "", "it is openGauss"},
		{"CrateDB 5.7.2 (built 2a06ab7/2024-05-14T09:16:34Z, Linux 5.15 amd64, OpenJDK 64-Bit Server VM 22.0.1)", "", "it is CrateDB"},
		{"8.0.36", "", "it calls itself"},
		{"", "", "it calls itself"},
	} {
		for _, standby := range []bool{false, true} {
			err := postgres.New(nil).Verify(t.Context(), server{version: c.version, other: c.other, standby: standby})

			// Whoever may only look has to know that the rest is right.
			switch {
			case c.want != "":
				if !errors.Is(err, databases.ErrWrongServer) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%q: %v, want a refusal that says %q", c.version, err, c.want)
				}
			case standby && !errors.Is(err, databases.ErrReadOnly), !standby && err != nil:
				t.Errorf("%q: %v, standby %t", c.version, err, standby)
			}

			if err := postgres.New(nil).AllowUntested().Verify(t.Context(), server{version: c.version, other: c.other}); err != nil {
				t.Errorf("%q: %v, though untested servers are allowed", c.version, err)
			}
		}
	}
}

func TestVerifyWithoutItsFunctions(t *testing.T) {
	t.Parallel()

	err := postgres.New(nil).Verify(t.Context(), server{version: "PostgreSQL 16.1", lacks: true})
	if !errors.Is(err, databases.ErrWrongServer) || !strings.Contains(err.Error(), "lacks functions") {
		t.Error(err)
	}
}
