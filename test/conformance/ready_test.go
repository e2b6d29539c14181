package conformance_test

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/test/catalog"
)

// wantUnready is wantTry for a readiness probe.
func wantUnready(t *testing.T, strategy strategies.Strategy, want error, words ...string) {
	t.Helper()

	err := lockerOn(t, strategy).Ready(t.Context())
	if !errors.Is(err, want) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("Ready() = %v, want %v in one line", err, want)
	}

	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("Ready() = %q, want that it says %q", err, word)
		}
	}
}

// TestUnready asks servers that are not there.
func TestUnready(t *testing.T) {
	t.Parallel()

	// Nobody listens there any more.
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address, _ := listener.Addr().(*net.TCPAddr)
	_ = listener.Close()

	onPostgres, onMySQL := postgresConfig(t).Copy(), mysqlConfig(t, "mysql").Clone()
	onPostgres.Host, onPostgres.Port, onPostgres.Fallbacks = address.IP.String(), uint16(address.Port), nil
	onMySQL.Net, onMySQL.Addr = "tcp", address.String()

	for server, db := range map[string]databases.DB{
		"pgxpool": pgxPool(t, onPostgres, pgx.QueryExecModeCacheStatement), "postgres": postgres.NewStd(stdPool(t, onPostgres)),
		"mysql": mysql.New(mysqlPool(t, onMySQL)),
	} {
		for _, strategy := range catalog.All() {
			t.Run(server+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()
				wantUnready(t, strategy.Make(db), sqllock.ErrUnreachable)
			})
		}
	}
}
