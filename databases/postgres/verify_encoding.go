package postgres

import (
	"context"

	"github.com/sqllock/sqllock/databases"
)

var verifyEncoding = databases.Statement{
	Name: "postgres.verify-encoding",
	SQL:  `SELECT pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('client_encoding')`,
}

// encoded reports a database or a session that is not in UTF-8, in which names are
// written here. In another, programs write different bytes for one name, and it would
// be two: a database in SQL_ASCII takes any, and one in LATIN1 converts what a session
// says to be UTF-8, and does not what it says to be LATIN1
// (https://www.postgresql.org/docs/current/multibyte.html).
func encoded(ctx context.Context, s databases.Session) error {
	var server, client string

	_, err := s.Run(ctx, verifyEncoding, nil, func(row databases.Row) error { return row(&server, &client) })

	switch {
	case err != nil:
		return err
	case server != "UTF8":
		return &databases.ServerError{
			Found: "server_encoding is " + server + ", in which one name could be two", Fix: "create the database with ENCODING 'UTF8'",
		}
	case client != "UTF8":
		return &databases.ServerError{
			Found: "client_encoding is " + client + ", and names are sent in UTF-8",
			Fix:   "leave it out of the DSN, of PGCLIENTENCODING and of the settings of role and database",
		}
	default:
		return nil
	}
}
