package servers

import (
	"context"
	"database/sql"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"
)

// mariadbReplicator has the standby repeat the primary's binary log, in the format that is the server's
// default. Both are made empty, and follow begins where the primary's log is then.
type mariadbReplicator struct{}

func (mariadbReplicator) primaryEngine() engine { return logging("1") }

func (mariadbReplicator) standbyEngine(context.Context, *server) (engine, error) {
	return logging("2"), nil
}

// logging is MariaDB with a binary log.
func logging(id string) engine {
	e := engines()["mariadb"]
	options := []string{"--server-id=" + id, "--log-bin=binlog", "--relay-log=relay"}

	e.containerOptions = append(e.containerOptions, options...)

	e.locate = func(ctx context.Context) (installation, error) {
		found, err := locateMariaDB(ctx)
		found.options = func(folder, port string) []string { return append(mysqlProgramOptions(folder, port), options...) }

		return found, err
	}

	return e
}

func (mariadbReplicator) follow(
	ctx context.Context, pair *Replicated, primary, standby *sql.DB, _ Replication,
) error {
	config, err := mysql.ParseDSN(pair.primary.dsn)
	if err != nil {
		return err
	}

	host, port, err := net.SplitHostPort(pair.primary.neighbour)
	if err != nil {
		return err
	}

	file, position, err := logPosition(ctx, primary)
	if err != nil {
		return err
	}

	return execAll(ctx, standby,
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', "+
			"MASTER_LOG_FILE='%s', MASTER_LOG_POS=%d, MASTER_USE_GTID=no, MASTER_SSL=0, MASTER_SSL_VERIFY_SERVER_CERT=0",
			host, port, config.User, config.Passwd, file, position),
		"SET GLOBAL read_only = 1", "START SLAVE")
}

// logPosition is where the primary's binary log ends.
func logPosition(ctx context.Context, primary *sql.DB) (file string, position int64, err error) {
	var some, none string

	err = primary.QueryRowContext(ctx, "SHOW MASTER STATUS").Scan(&file, &position, &some, &none)

	return file, position, err
}

func (mariadbReplicator) caughtUp(ctx context.Context, primary, standby *sql.DB) error {
	file, position, err := logPosition(ctx, primary)
	if err != nil {
		return err
	}

	return until(ctx, standby, fmt.Sprintf("SELECT MASTER_POS_WAIT('%s', %d, 60) >= 0", file, position))
}

func (mariadbReplicator) cut(ctx context.Context, _, standby *sql.DB) error {
	return execAll(ctx, standby, "STOP SLAVE")
}

func (mariadbReplicator) promote(ctx context.Context, standby *sql.DB) error {
	return execAll(ctx, standby, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
}
