package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// mysqlReplicator has the standby repeat the primary's binary log, in the format that is the server's
// default. The standby is made empty. It gets a copy of the database, and follows from where the primary's log was then.
type mysqlReplicator struct{ name string }

func (m mysqlReplicator) primaryEngine() engine { return m.logging(firstStandby - 1) }

func (mysqlReplicator) startsAlone() bool { return true }

func (m mysqlReplicator) standbyEngine(_ context.Context, _ *server, number int) (engine, error) {
	return m.logging(number), nil
}

// logging is a server with a binary log.
func (m mysqlReplicator) logging(number int) engine {
	e := engines()[m.name]
	options := []string{"--server-id=" + strconv.Itoa(number), "--log-bin=binlog", "--relay-log=relay"}

	e.containerOptions = append(e.containerOptions, options...)
	locate := e.locate

	e.locate = func(ctx context.Context) (installation, error) {
		found, err := locate(ctx)
		own := found.options
		found.options = func(folder, port string) []string { return append(own(folder, port), options...) }

		return found, err
	}

	return e
}

// words are what the two servers call the same.
func (m mysqlReplicator) words(mariadb, mysql string) string {
	if m.name == "mariadb" {
		return mariadb
	}

	return mysql
}

func (m mysqlReplicator) follow(ctx context.Context, to *server, primary, standby *sql.DB, _ Replication) error {
	config, err := mysql.ParseDSN(to.dsn)
	if err != nil {
		return err
	}

	host, port, err := net.SplitHostPort(to.neighbour)
	if err != nil {
		return err
	}

	file, position, err := m.copyAll(ctx, primary, standby)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}

	// A password that MySQL has not seen since it was started is sent to it encrypted, by its own key or over TLS.
	change := m.words("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', "+
		"MASTER_LOG_FILE='%s', MASTER_LOG_POS=%d, MASTER_USE_GTID=no, MASTER_SSL=0, MASTER_SSL_VERIFY_SERVER_CERT=0",
		"CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='%s', SOURCE_PASSWORD='%s', "+
			"SOURCE_LOG_FILE='%s', SOURCE_LOG_POS=%d, SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1")

	return execAll(ctx, standby,
		fmt.Sprintf(change, host, port, config.User, config.Passwd, file, position),
		"SET GLOBAL read_only = 1", m.words("START SLAVE", "START REPLICA"))
}

// copyAll copies the database, and says where the primary's binary log was meanwhile.
func (m mysqlReplicator) copyAll(ctx context.Context, primary, standby *sql.DB) (file string, position int64, err error) {
	from, err := primary.Conn(ctx)
	if err != nil {
		return "", 0, err
	}
	defer from.Close()

	to, err := standby.Conn(ctx)
	if err != nil {
		return "", 0, err
	}
	defer to.Close()

	if _, err := from.ExecContext(ctx, "FLUSH TABLES WITH READ LOCK"); err != nil {
		return "", 0, err
	}

	file, position, err = m.logPosition(ctx, from)
	if err == nil {
		err = copyDatabase(ctx, from, to)
	}

	_, unlockErr := from.ExecContext(context.WithoutCancel(ctx), "UNLOCK TABLES")

	return file, position, errors.Join(err, unlockErr)
}

// copyDatabase copies tables and views of the sessions' database.
func copyDatabase(ctx context.Context, from, to *sql.Conn) error {
	found, err := texts(ctx, from, "SHOW FULL TABLES")
	if err != nil {
		return err
	}

	// None of it is for those who follow the copy: they get one of their own.
	if _, err := to.ExecContext(ctx, "SET sql_log_bin = 0"); err != nil {
		return err
	}

	for _, kind := range []string{"BASE TABLE", "VIEW"} {
		for _, row := range found {
			if name := "`" + row[0].String + "`"; row[1].String == kind {
				if err := copyTable(ctx, from, to, name, kind == "BASE TABLE"); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}

	return nil
}

func copyTable(ctx context.Context, from, to *sql.Conn, name string, rows bool) error {
	made, err := texts(ctx, from, "SHOW CREATE TABLE "+name)
	if err != nil {
		return err
	}

	if _, err := to.ExecContext(ctx, made[0][1].String); err != nil || !rows {
		return err
	}

	copied, err := texts(ctx, from, "SELECT * FROM "+name)
	if err != nil {
		return err
	}

	for _, row := range copied {
		values := make([]any, len(row))
		for i, value := range row {
			values[i] = value
		}

		marks := strings.TrimSuffix(strings.Repeat("?, ", len(row)), ", ")

		if _, err := to.ExecContext(ctx, "INSERT INTO "+name+" VALUES ("+marks+")", values...); err != nil {
			return err
		}
	}

	return nil
}

// texts are all columns of all rows.
func texts(ctx context.Context, conn *sql.Conn, query string) (all [][]sql.NullString, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}

	for rows.Next() {
		row := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))

		for i := range row {
			into[i] = &row[i]
		}

		if err := rows.Scan(into...); err != nil {
			return nil, err
		}

		all = append(all, row)
	}

	return all, rows.Err()
}

// logPosition is where the primary's binary log ends.
func (m mysqlReplicator) logPosition(ctx context.Context, primary *sql.Conn) (file string, position int64, err error) {
	status, err := texts(ctx, primary, m.words("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"))
	if err != nil {
		return "", 0, err
	}

	position, err = strconv.ParseInt(status[0][1].String, 10, 64)

	return status[0][0].String, position, err
}

func (m mysqlReplicator) caughtUp(ctx context.Context, primary, standby *sql.DB) error {
	conn, err := primary.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	file, position, err := m.logPosition(ctx, conn)
	if err != nil {
		return err
	}

	return until(ctx, standby, fmt.Sprintf("SELECT %s('%s', %d, 60) >= 0", m.words("MASTER_POS_WAIT", "SOURCE_POS_WAIT"), file, position))
}

func (m mysqlReplicator) cut(ctx context.Context, _, standby *sql.DB) error {
	return execAll(ctx, standby, m.words("STOP SLAVE", "STOP REPLICA"))
}

func (m mysqlReplicator) promote(ctx context.Context, standby *sql.DB) error {
	return execAll(ctx, standby, m.words("STOP SLAVE", "STOP REPLICA"), m.words("RESET SLAVE ALL", "RESET REPLICA ALL"),
		"SET GLOBAL read_only = 0")
}
