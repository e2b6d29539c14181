package migrate

import (
	"context"
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
	createTable = regexp.MustCompile(`(?s)^CREATE TABLE (\w+) \((.*)\n\)`)
	createView  = regexp.MustCompile(`(?s)^CREATE VIEW (\w+) AS\s+SELECT (.*?)\n  FROM `)
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

// Look reads nothing of a table or a view, in the one way that every server understands. Its error is that of one that is not
// there, or ErrAltered.
func (o Object) Look(ctx context.Context, db *dsn.Database, conn database.DBTxConn) error {
	if err := look(ctx, conn, "1", o.Name); err != nil {
		return err
	}

	err := look(ctx, conn, strings.Join(o.Columns, ", "), o.Name)
	if db.Locks.Classify(err) == databases.NoSchema {
		return fmt.Errorf("%s is there, and is %w (%w)", o.Name, ErrAltered, err)
	}

	return err
}

// look reads nothing.
func look(ctx context.Context, conn database.DBTxConn, columns, name string) error {
	rows, err := conn.QueryContext(ctx, "SELECT "+columns+" FROM "+name+" WHERE 1 = 0")
	if err != nil {
		return err
	}

	defer func() { _ = rows.Close() }()

	return rows.Err()
}
