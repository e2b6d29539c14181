package grants_test

import (
	"errors"
	"testing"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
	"github.com/sqllock/sqllock/databases/postgres"
	"github.com/sqllock/sqllock/databases/sqlite"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// TestNilPool: it is the database's constructor that was given none.
func TestNilPool(t *testing.T) {
	t.Parallel()

	for want, db := range map[string]databases.DB{
		"postgres.New: invalid option: the pool is nil": postgres.New(nil),
		"mysql.New: invalid option: the pool is nil":    mysql.New(nil),
		"sqlite.New: invalid option: the pool is nil":   sqlite.New(nil),
	} {
		if err := cas.New(db).Validate(); err == nil || err.Error() != want || !errors.Is(err, strategies.ErrInvalidOption) {
			t.Errorf("Validate() = %v, want %q", err, want)
		}
	}
}
