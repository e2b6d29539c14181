package sqlite

import (
	"errors"
	"testing"

	"github.com/sqllock/sqllock/databases"
)

// TestRefuse has the packages of drivers.
func TestRefuse(t *testing.T) {
	t.Parallel()

	if err := refuse(nil); err != nil {
		t.Errorf("refuse(nil) = %v, want nil", err)
	}

	for path, refused := range map[string]bool{
		"github.com/canonical/go-dqlite/v3/driver": true,
		"modernc.org/sqlite":                       false,
		"github.com/mattn/go-sqlite3":              false,
		"":                                         false,
	} {
		if err := refusePackage(path); errors.Is(err, databases.ErrWrongServer) != refused {
			t.Errorf("refusePackage(%q) = %v, want it refused: %t", path, err, refused)
		}
	}
}
