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

// TestMountsFile has lines as Linux writes them.
func TestMountsFile(t *testing.T) {
	t.Parallel()

	const mounted = `25 1 254:0 / / rw,relatime - ext4 /dev/root rw
61 25 254:0 /srv/data /data rw,relatime - ext4 /dev/root rw
62 25 254:0 /srv/app.db /alone/the\040app.db rw,relatime - ext4 /dev/root rw
`

	for path, want := range map[string]bool{
		"/data/app.db": false, "/alone/the app.db": true, "/alone/the": false, "/": true,
	} {
		if got := mountsFile(mounted, path); got != want {
			t.Errorf("mountsFile(%q) = %t, want %t", path, got, want)
		}
	}
}
