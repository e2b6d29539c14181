package grants_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/strategies"
	"github.com/sqllock/sqllock/strategies/cas"
)

// standby is a database that takes no writes.
type standby struct{ answering }

func (*standby) Conn(context.Context) (databases.Conn, error) { return new(standby), nil }
func (*standby) Verify(context.Context, databases.Session) error {
	return fmt.Errorf("%w: it is a standby", databases.ErrReadOnly)
}

// TestReadOnlyIsSaidOnce: the database's own words are enough.
func TestReadOnlyIsSaidOnce(t *testing.T) {
	t.Parallel()

	db := &standby{answering{dialect: databases.Postgres}}

	_, err := strategies.AcquireOne(t.Context(), cas.New(db), strategies.Request{Name: "name", Owner: "owner", Lease: time.Minute})
	if want := "server is read-only: it is a standby"; err == nil || err.Error() != want || !errors.Is(err, strategies.ErrReadOnly) {
		t.Errorf("Acquire() = %v, want %q, and that it is ErrReadOnly", err, want)
	}
}
