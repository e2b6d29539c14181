package conformance_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies/cas"
)

// TestEncodings has databases and sessions in which two programs may write one name
// in different bytes.
func TestEncodings(t *testing.T) {
	t.Parallel()

	server := postgresConfig(t)
	maintenance := stdPool(t, server)

	for _, encoding := range []string{"SQL_ASCII", "LATIN1"} {
		t.Run("database in "+encoding, func(t *testing.T) {
			t.Parallel()

			config := server.Copy()
			config.Database = uniqueName()

			exec(t, maintenance, "CREATE DATABASE "+config.Database+" ENCODING '"+encoding+"' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
			t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE "+config.Database+" WITH (FORCE)") })

			wantTry(t, cas.New(pgxPool(t, config, pgx.QueryExecModeCacheStatement)), sqllock.ErrUnsupported,
				"server_encoding is "+encoding, "ENCODING 'UTF8'")

			pq, err := sql.Open("postgres", libpqString(config))
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = pq.Close() })
			wantTry(t, cas.New(postgres.NewStd(pq)), sqllock.ErrUnsupported, "server_encoding is "+encoding)
		})
	}

	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run("session in "+encoding, func(t *testing.T) {
			t.Parallel()

			config := postgresDatabase(t, server)
			config.RuntimeParams["client_encoding"] = encoding

			wantTry(t, cas.New(pgxPool(t, config, pgx.QueryExecModeCacheStatement)), sqllock.ErrUnsupported, "client_encoding is "+encoding)
		})
	}

	t.Run("session in UTF-8 by another name", func(t *testing.T) {
		t.Parallel()

		config := postgresDatabase(t, server)
		config.RuntimeParams["client_encoding"] = "unicode"

		lockTwice(t, "unicode", cas.New(pgxPool(t, config, pgx.QueryExecModeCacheStatement)))
	})
}
