package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// postgresReplicator has the standby stream the primary's log.
type postgresReplicator struct{}

func (postgresReplicator) primaryEngine() engine { return engines()["postgres"] }

func (postgresReplicator) startsAlone() bool { return false }

// standbyEngine's data directory is a copy of the primary's.
func (postgresReplicator) standbyEngine(ctx context.Context, primary *server, number int) (engine, error) {
	e := engines()["postgres"]

	config, err := pgx.ParseConfig(primary.dsn)
	if err != nil {
		return e, err
	}

	host, port, err := net.SplitHostPort(primary.neighbour)
	if err != nil {
		return e, err
	}

	// A standby that was promoted has both from its primary.
	if number == firstStandby {
		if err := quickLogins(ctx, primary.dsn, config.Password); err != nil {
			return e, err
		}

		if host != loopback {
			if err := letReplicate(ctx, primary.dsn); err != nil {
				return e, err
			}
		}
	}

	connection := func(secret string) string {
		return fmt.Sprintf("host=%s port=%s user=%s application_name=standby %s", host, port, config.User, secret)
	}

	// The image's own entrypoint starts what is in the folder, as the user that it wants.
	e.containerOptions = append([]string{
		"sh", "-ec", `pg_basebackup --pgdata="$PGDATA" --write-recovery-conf --checkpoint=fast --dbname="$PRIMARY"
exec docker-entrypoint.sh postgres "$@"`, "standby",
	}, e.containerOptions...)
	e.containerEnv = func(string) map[string]string {
		return map[string]string{"PRIMARY": connection("password=" + config.Password)}
	}

	e.locate = func(ctx context.Context) (installation, error) {
		found, err := locatePostgres(ctx)
		if err != nil {
			return found, err
		}

		program := filepath.Join(filepath.Dir(found.program), "pg_basebackup")
		if !exists(program) {
			return found, absentError("there is no pg_basebackup beside " + found.program)
		}

		found.prepare = func(ctx context.Context, folder, _ string) (*exec.Cmd, error) {
			passwords := filepath.Join(folder, "passwords")

			err := os.WriteFile(passwords, []byte("*:*:*:*:"+config.Password+"\n"), 0o600)

			return exec.CommandContext(ctx, program, "--pgdata="+filepath.Join(folder, "data"), "--write-recovery-conf",
				"--checkpoint=fast", "--no-sync", "--dbname="+connection("passfile="+passwords)), err
		}

		return found, nil
	}

	return e, nil
}

// letReplicate lets other machines' standbys connect; initdb's rules let this machine's. "all" databases in
// a rule are all but this one (https://www.postgresql.org/docs/current/auth-pg-hba-conf.html).
func letReplicate(ctx context.Context, dsn string) error {
	db, err := openPostgres(dsn)
	if err != nil {
		return err
	}
	defer db.Close()

	var rules string
	if err := db.QueryRowContext(ctx, "SHOW hba_file").Scan(&rules); err != nil {
		return err
	}

	return execAll(ctx, db,
		"COPY (SELECT 'host replication all all scram-sha-256') TO PROGRAM 'cat >>"+rules+"'",
		"SELECT pg_reload_conf()")
}

func (postgresReplicator) follow(
	ctx context.Context, _ *server, primary, _ *sql.DB, replication Replication,
) error {
	state := "async"

	if replication == Synchronous {
		state = "sync"

		err := execAll(ctx, primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
		if err != nil {
			return err
		}
	}

	return until(ctx, primary, `SELECT EXISTS (SELECT FROM pg_stat_replication
 WHERE state = 'streaming' AND sync_state = '`+state+`' AND replay_lsn >= pg_current_wal_lsn())`)
}

func (postgresReplicator) caughtUp(ctx context.Context, primary, _ *sql.DB) error {
	return until(ctx, primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn())")
}

func (postgresReplicator) cut(ctx context.Context, primary, standby *sql.DB) error {
	if err := execAll(ctx, standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"); err != nil {
		return err
	}

	return errors.Join(
		until(ctx, standby, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)"),
		until(ctx, primary, "SELECT NOT EXISTS (SELECT FROM pg_stat_replication)"),
	)
}

func (postgresReplicator) promote(ctx context.Context, standby *sql.DB) error {
	return until(ctx, standby, "SELECT pg_promote(true, 60)")
}
