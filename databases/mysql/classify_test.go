package mysql_test

import (
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/databases"
	"github.com/sqllock/sqllock/databases/mysql"
)

// TestClassifyBlocked has what a primary of a replication group answers to all, while it waits to hand its role on.
func TestClassifyBlocked(t *testing.T) {
	t.Parallel()

	err := &driver.MySQLError{
		Number: 4094, Message: "All queries have been blocked while function 'group_replication_set_as_primary()' is executing.",
	}

	if got := mysql.New(nil).Classify(err); got != databases.Unreachable {
		t.Errorf("Classify(%v) = %d, want %d, so that waits outlast it", err, got, databases.Unreachable)
	}
}

// TestClassifyLostCommits has what a commit returns that lost to one on another node, and what looks like it.
func TestClassifyLostCommits(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		err  driver.MySQLError
		want databases.Class
	}{
		{driver.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock; try restarting transaction"}, databases.Busy},
		{driver.MySQLError{Number: 3101, Message: "Plugin instructed the server to rollback the current transaction."}, databases.Busy},
		{driver.MySQLError{Number: 1180, Message: "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"}, databases.Busy},
		{driver.MySQLError{Number: 1180, Message: "Got error 28 - 'No space left on device' during COMMIT"}, databases.Refused},
	} {
		if got := mysql.New(nil).Classify(&c.err); got != c.want {
			t.Errorf("Classify(%v) = %d, want %d", &c.err, got, c.want)
		}
	}
}

// TestClassifyProxy has what ProxySQL answers by itself while no server is there.
func TestClassifyProxy(t *testing.T) {
	t.Parallel()

	for _, number := range []uint16{9001, 9002, 9005, 9012, 9501} {
		err := &driver.MySQLError{Number: number, Message: "Max connect timeout reached while reaching hostgroup 0 after 10000ms"}

		if got := mysql.New(nil).Classify(err); got != databases.Unreachable {
			t.Errorf("Classify(%v) = %d, want %d, so that waits outlast it", err, got, databases.Unreachable)
		}
	}
}
