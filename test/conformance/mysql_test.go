package conformance_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/internal/outsider"
	"github.com/sqllock/sqllock/sqllock"
	"github.com/sqllock/sqllock/sqllocktest"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
	"github.com/sqllock/sqllock/test/catalog"
)

// Driver modes: what a DSN may say. The first runs all cases. Character sets are of the kind in which names
// are other bytes, and in which quoting by bytes is not enough.
var mysqlModes = []mysqlMode{
	{"default", false, true, func(*driver.Config) {}},
	{"plain", true, false, func(*driver.Config) {}},
	{"found-rows", false, true, func(c *driver.Config) {
		c.ClientFoundRows = true
		_ = c.Apply(driver.Charset("latin1", ""))
	}},
	{"interpolate", false, false, func(c *driver.Config) {
		c.InterpolateParams, c.ParseTime = true, true
		_ = c.Apply(driver.Charset("gbk", ""))
	}},
}

type mysqlMode struct {
	name         string
	plain, wakes bool
	set          func(*driver.Config)
}

func (m mysqlMode) database(pool *sql.DB) databases.DB {
	if m.wakes {
		return mysql.New(pool).WakeWaiters()
	}

	return mysql.New(pool)
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	testMySQL(t, "mysql")
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	testMySQL(t, "mariadb")
}

func testMySQL(t *testing.T, server string) {
	t.Helper()

	for m, mode := range mysqlModes {
		for n, strategy := range suited(mode.plain) {
			t.Run(mode.name+"/"+strategy.Name, func(t *testing.T) {
				t.Parallel()

				config := mysqlDatabase(t, mysqlConfig(t, server))
				beside := mysqlPool(t, config)
				mode.set(config)

				pools := newStock(t)
				open := func() pool { return poolOfStd{openMySQL(t, config), mode.database} }

				sqllocktest.Run(t, sqllocktest.Harness{
					Only: part(m, n),
					New: func(t *testing.T) sqllocktest.Fixture {
						db := watched{pools.take(t, open), digits(t)}
						faulty := sqllocktest.NewFaulty(db)
						other := sqllocktest.NewFaulty(watched{pools.take(t, open), digits(t)})
						wrap := func(tx *sql.Tx) databases.Tx { return db.Tx(mysql.Tx(tx)) }

						fixture := sqllocktest.Fixture{
							Strategy: strategy.Make(faulty), Other: strategy.Make(other), Faulty: faulty, OtherFaulty: other,
							Rivals: func(t *testing.T) []strategies.Strategy {
								return rivals(t, strategy.Name, func() databases.DB { return mysql.New(mysqlPool(t, config)) })
							},
						}
						outsider.Outsider{DB: beside, Dialect: databases.MySQL, Strategy: strategy.Name}.Equip(&fixture, wrap)

						return fixture
					},
					Isolations: outsider.Isolations(databases.MySQL),
					TryWithin:  tryWithin,
					Patience:   casePatience,
					Statements: outsider.Statements(strategy.Name, databases.MySQL),
					Plain:      mode.plain,
					Rivals:     true,
				})
			})
		}
	}
}

// mysqlDatabase makes a database with sqllock's tables, for one run of the
// suite.
func mysqlDatabase(t *testing.T, server *driver.Config) *driver.Config {
	t.Helper()

	name := uniqueName()
	maintenance := mysqlPool(t, server)
	exec(t, maintenance, "CREATE DATABASE "+name)
	t.Cleanup(func() { exec(t, maintenance, "DROP DATABASE IF EXISTS "+name) })

	config := server.Clone()
	config.DBName = name

	parsing := config.Clone()
	parsing.ParseTime = true // goose reads times
	migrate(t, mysqlPool(t, parsing), databases.MySQL)

	return config
}

func mysqlPool(t *testing.T, config *driver.Config) *sql.DB {
	t.Helper()

	db := openMySQL(t, config)
	t.Cleanup(func() { _ = db.Close() })

	return db
}

func openMySQL(t *testing.T, config *driver.Config) *sql.DB {
	t.Helper()

	connector, err := driver.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}

	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(poolSize)

	return db
}

// TestBatchKeepsOffTheDisk: the tables that a server makes of a batch while it
// executes a statement stay in memory. One on disk, into which MariaDB puts every
// value that may be long, takes longer than the batch.
func TestBatchKeepsOffTheDisk(t *testing.T) {
	t.Parallel()

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()

			pool := mysqlPool(t, mysqlDatabase(t, mysqlConfig(t, server)))
			pool.SetMaxOpenConns(1) // what is counted is counted for each session

			onDisk := func() (made int) {
				t.Helper()

				var variable string
				if err := pool.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Created_tmp_disk_tables'").Scan(&variable, &made); err != nil {
					t.Fatal(err)
				}

				return made
			}

			s := cas.New(mysql.New(pool))
			batchTwice(t, server, s) // the rows are there from now on, and the server verified

			// Whatever the question itself makes.
			begun := onDisk()
			asking := onDisk() - begun
			begun += 2 * asking

			batchTwice(t, server, s)

			if made := onDisk() - begun; made != 0 {
				t.Errorf("two acquisitions, renewals and releases in batches made %d tables on disk, want none", made)
			}
		})
	}
}

// TestLargestBatch: a locker puts up to 128 kB of names, labels and metadata into a statement. All of it escaped, that fits in
// a megabyte; servers take more by default. It is not parallel: max_allowed_packet is the whole server's.
func TestLargestBatch(t *testing.T) {
	const batchBytes = 128 << 10

	// What is the same for all is sent once.
	holder := func(i int) strategies.Holder {
		return strategies.Holder{
			PID: i, Label: strings.Repeat(`\`, sqllock.MaxLabelLength-5) + fmt.Sprintf("%05d", i),
			Metadata: `{"x":"` + strings.Repeat(`\`, sqllock.MaxMetadataLength-13) + fmt.Sprintf(`%05d"}`, i),
		}
	}

	for _, server := range []string{"mysql", "mariadb"} {
		t.Run(server, func(t *testing.T) {
			config := mysqlDatabase(t, mysqlConfig(t, server))
			limit(t, mysqlPool(t, config), 1<<20)

			for _, made := range catalog.All() {
				strategy := made.Make(mysql.New(mysqlPool(t, config)))

				if strategy.Features().Unbatched {
					continue
				}

				t.Run(made.Name, func(t *testing.T) {
					var requests []strategies.Request

					for size := 0; size < batchBytes; {
						n := len(requests)
						r := strategies.Request{
							Name: strings.Repeat(`\`, 250) + fmt.Sprintf("%05d", n), Owner: fmt.Sprint(made.Name, n),
							Lease: time.Minute, Holder: holder(n),
						}
						requests = append(requests, r)
						size += len(r.Name) + len(r.Holder.Label) + len(r.Holder.Metadata)
					}

					grants, errs := strategy.Acquire(t.Context(), requests)
					for _, err := range errs {
						if err != nil {
							t.Fatalf("Acquire() of %d = %v, want nil", len(requests), err)
						}
					}

					_, errs = strategy.Release(t.Context(), grants)
					for _, err := range errs {
						if err != nil {
							t.Fatalf("Release() = %v, want nil", err)
						}
					}
				})
			}
		})
	}
}

// limit sets the largest packet that new sessions may send, until the test ends.
func limit(t *testing.T, db *sql.DB, bytes int) {
	t.Helper()

	var before int
	if err := db.QueryRowContext(t.Context(), "SELECT @@global.max_allowed_packet").Scan(&before); err != nil {
		t.Fatal(err)
	}

	exec(t, db, fmt.Sprintf("SET GLOBAL max_allowed_packet = %d", bytes))
	t.Cleanup(func() { exec(t, db, fmt.Sprintf("SET GLOBAL max_allowed_packet = %d", before)) })
}
