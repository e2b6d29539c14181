package migrate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3/database"

	"github.com/sqllock/sqllock/cmd/sqllock/internal/dsn"
	"github.com/sqllock/sqllock/databases"
)

// Object is a table or a view, as the migrations make it.
type Object struct {
	Name    string
	View    bool
	Columns []string
}

// Expected are the tables and views that the migrations make, in that order.
func Expected(dialect databases.Dialect) ([]Object, error) {
	statements, err := made(dialect)
	if err != nil {
		return nil, err
	}

	var objects []Object

	for _, statement := range statements {
		if found := createTable.FindStringSubmatch(statement); found != nil {
			objects = append(objects, Object{Name: found[1], Columns: first(columnLine.FindAllStringSubmatch(found[2], -1))})
		} else if found := createView.FindStringSubmatch(statement); found != nil {
			objects = append(objects, Object{Name: found[1], View: true, Columns: first(selected.FindAllStringSubmatch(found[2], -1))})
		}
	}

	return objects, nil
}

func first(found [][]string) (groups []string) {
	for _, one := range found {
		groups = append(groups, one[1])
	}

	return groups
}

// The migrations are written so that these find what there is; of the columns of views those that they name.
var (
	comment     = regexp.MustCompile(`(?m) *--.*$`)
	createTable = regexp.MustCompile(`(?s)^CREATE (?:UNLOGGED )?TABLE (\w+) \((.*)\n\)`)
	createView  = regexp.MustCompile(`(?s)^CREATE (?:SQL SECURITY INVOKER )?VIEW (\w+) AS\s+SELECT (.*?)(?:\n  FROM |$)`)
	columnLine  = regexp.MustCompile(`(?m)^    ([a-z_]+) +\w`)
	selected    = regexp.MustCompile(` AS ([a-z_]+)\b`)
)

// made are the statements of the migrations.
func made(dialect databases.Dialect) (statements []string, err error) {
	var printed strings.Builder
	if err := Print(&printed, string(dialect), false); err != nil {
		return nil, err
	}

	for statement := range strings.SplitSeq(comment.ReplaceAllString(printed.String(), ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}

	return statements, nil
}

// Objects are the tables and views as a database has them.
type Objects struct {
	There, Missing []Object
	// Altered says which of those that are there are not sqllock's.
	Altered []error
}

var errAltered = errors.New("not the one that sqllock makes")

// Look says which of the tables and views there are. Those that the user may not read are there.
func Look(ctx context.Context, db *dsn.Database, conn database.DBTxConn) (o Objects, err error) {
	expected, err := Expected(db.Target.Dialect)
	if err != nil {
		return o, err
	}

	// Nothing is read, in the one way that every server understands.
	for _, object := range expected {
		err := look(ctx, conn, "1", object.Name)
		if db.Locks.Classify(err) == databases.NoSchema {
			o.Missing = append(o.Missing, object)

			continue
		}

		if err == nil {
			err = look(ctx, conn, strings.Join(object.Columns, ", "), object.Name)
		}

		switch class := db.Locks.Classify(err); {
		case class == databases.NoSchema:
			o.Altered = append(o.Altered, fmt.Errorf("%s is there, and is %w (%w)", object.Name, errAltered, err))
		case code(err) == "0A000": // of PostgreSQL, about an unlogged table on a standby
		case err != nil && class != databases.NotAllowed:
			return o, err
		}

		o.There = append(o.There, object)
	}

	return o, nil
}

// look reads nothing.
func look(ctx context.Context, conn database.DBTxConn, columns, name string) error {
	_, err := conn.ExecContext(ctx, "SELECT "+columns+" FROM "+name+" WHERE 1 = 0")

	return err
}
