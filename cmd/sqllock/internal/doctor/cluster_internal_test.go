package doctor

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
	databasemysql "github.com/sqllock/sqllock/databases/mysql"
)

// TestCluster has a server answer as those of clusters were seen to.
func TestCluster(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name      string
		variables map[string]string
		strategy  string
		want      []string // level and a part of what was found
	}{
		{"one server", nil, "advisory", []string{"ok one server"}},
		{"the plugin alone", map[string]string{"group_replication_single_primary_mode": "ON"}, "advisory", []string{"ok one server"}},
		{
			"Galera",
			map[string]string{"wsrep_on": "ON", "wsrep_cluster_status": "Primary", "wsrep_ready": "ON"},
			"cas",
			[]string{"note Galera, where each node"},
		},
		{
			"Galera",
			map[string]string{"wsrep_on": "ON", "wsrep_cluster_status": "Primary", "wsrep_ready": "ON"},
			"forupdate",
			[]string{"error Galera, where each node takes writes, and strategy forupdate"},
		},
		{
			"primary",
			map[string]string{"group_replication_single_primary_mode": "ON", "group_replication_group_name": "g"},
			"advisory",
			[]string{"ok a replication group"},
		},
		{
			"primary that the next one may lag behind",
			map[string]string{
				"group_replication_single_primary_mode": "ON", "group_replication_group_name": "g", "group_replication_consistency": "EVENTUAL",
			},
			"cas",
			[]string{"warning a replication group whose group_replication_consistency is EVENTUAL"},
		},
		{
			"several primaries",
			map[string]string{"group_replication_single_primary_mode": "OFF", "group_replication_group_name": "g"},
			"advisory",
			[]string{"error a replication group with several primaries, and strategy advisory"},
		},
	} {
		t.Run(c.name+"/"+c.strategy, func(t *testing.T) {
			t.Parallel()

			db := sql.OpenDB(answers(func(query string) (rows [][]driver.Value) {
				for name, value := range c.variables {
					if strings.HasPrefix(query, "SHOW GLOBAL VARIABLES ") && strings.Contains(query, "'"+name+"'") {
						rows = append(rows, []driver.Value{name, value})
					}
				}

				return rows
			}))
			defer db.Close()

			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()

			e := &exam{Plan: Plan{Strategy: c.strategy, Lease: 30 * time.Second}, conn: conn, db: &dsn.Database{Target: dsn.Target{Dialect: databases.MySQL}, SQL: db, Locks: databasemysql.New(db)}}

			findings, err := e.run(t.Context(), check{"cluster", mysqlCluster})
			if err != nil {
				t.Fatal(err)
			}

			if len(findings) != len(c.want) {
				t.Fatalf("found %+v, want %q", findings, c.want)
			}

			for i, f := range findings {
				if got := string(f.Level) + " " + f.Found; !strings.HasPrefix(got, c.want[i]) {
					t.Errorf("found %q, want %q", got, c.want[i])
				}
			}
		})
	}
}

// answers is a driver whose connections answer each query with rows of two columns.
type answers func(query string) [][]driver.Value

func (a answers) Connect(context.Context) (driver.Conn, error) { return a, nil }
func (a answers) Driver() driver.Driver                        { return nil }
func (a answers) Close() error                                 { return nil }
func (a answers) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (a answers) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }

func (a answers) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	return &answer{a(query)}, nil
}

// answer is the rows that are left.
type answer struct{ rows [][]driver.Value }

func (a *answer) Columns() []string { return make([]string, 2) }
func (a *answer) Close() error      { return nil }

func (a *answer) Next(dest []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}

	copy(dest, a.rows[0])
	a.rows = a.rows[1:]

	return nil
}
