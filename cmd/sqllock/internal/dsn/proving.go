package dsn

import (
	"database/sql"
	"strings"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/tidb"
)

// ProvingConns is how many connections a pool of a proof has at most: as many as the cases were written for.
const ProvingConns = 12

// Proving is the same database for a proof: with its tables in another place, which is a schema of PostgreSQL, a database
// of a MySQL or MariaDB server or the path of an SQLite file, and admitted though sqllock refuses such a server by its
// name, if untested says so. An empty place is the database's own.
func (t Target) Proving(place string, untested bool) Target {
	t.proving, t.untested = true, untested

	if place == "" {
		return t
	}

	if t.Dialect == databases.SQLite {
		// The cases say themselves when a transaction begins to write.
		_, query, _ := strings.Cut(t.driver, "?")
		t.driver = "file:" + uriPath(place) + "?" + strings.Replace(query, "_txlock=immediate", "_txlock=deferred", 1)
		t.Path, t.Embedded = place, false

		return t
	}

	t.place = place

	return t
}

func (t Target) postgresOn(db *postgres.DB) databases.DB {
	if t.untested {
		return db.AllowUntested()
	}

	return db
}

func (t Target) mysqlOn(std *sql.DB) databases.DB {
	if t.proving {
		std.SetMaxOpenConns(ProvingConns)
		std.SetMaxIdleConns(ProvingConns)
	}

	if t.Dialect == databases.TiDB {
		return tidb.New(std)
	}

	if t.untested {
		return mysql.New(std).AllowUntested()
	}

	return mysql.New(std)
}
