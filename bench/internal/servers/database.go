package servers

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"
)

// dsn is that of the environment, as withservers sets it.
func dsn(name string) (string, error) {
	variable := "SQLLOCK_TEST_" + strings.ToUpper(name)

	value := os.Getenv(variable)
	if value == "" {
		return "", fmt.Errorf("%s is not set", variable)
	}

	return value, nil
}

func uniqueName() string {
	return fmt.Sprintf("sqllock_bench_%d_%d", os.Getpid(), time.Now().Unix()%100000)
}

// execAll runs the statements of a set-up.
func execAll(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}

	return nil
}

// floorRow is the application's row, in the table of the floors.
const floorRow = `INSERT INTO sqllock_bare (name) VALUES ('row')`
