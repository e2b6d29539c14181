package dsn

import (
	"errors"
	"slices"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// WrongParameter says whether a server refused a session for what the URL has it set:
// a name that the server does not know, or a value that is none
// (https://www.postgresql.org/docs/current/errcodes-appendix.html,
// https://dev.mysql.com/doc/mysql-errors/9.7/en/server-error-reference.html). MySQL's
// codes are of SET; locks set what every server has.
func WrongParameter(err error) bool {
	var (
		refused *pgconn.PgError
		said    *driver.MySQLError
	)

	switch {
	case errors.As(err, new(*pgconn.ConnectError)) && errors.As(err, &refused):
		return refused.Code == "42704" || refused.Code == "22023"
	case errors.As(err, &said):
		return slices.Contains([]uint16{1193, 1231, 1232}, said.Number)
	default:
		return false
	}
}
