package servers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

func locatePostgres(ctx context.Context) (installation, error) {
	accept := func(version string) bool { return strings.Contains(version, "(PostgreSQL)") }

	program, err := locateProgram(ctx, accept, []string{"postgres"}, []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	})
	if err != nil {
		return installation{}, err
	}

	initdb := filepath.Join(filepath.Dir(program), "initdb")
	if !exists(initdb) {
		return installation{}, absentError("there is no initdb beside " + program)
	}

	return installation{
		program: program,
		users:   []string{"postgres"},
		prepare: func(ctx context.Context, folder, password string) (*exec.Cmd, error) {
			passwords := filepath.Join(folder, "password")
			if err := os.WriteFile(passwords, []byte(password+"\n"), 0o600); err != nil {
				return nil, err
			}

			// --no-sync is for the making of the files only.
			return exec.CommandContext(ctx, initdb, "--pgdata="+filepath.Join(folder, "data"),
				"--username=postgres", "--pwfile="+passwords, "--auth=scram-sha-256",
				"--encoding=UTF8", "--locale=C", "--no-sync"), nil
		},
		options: func(folder, port string) []string {
			return append([]string{
				"-D", filepath.Join(folder, "data"),
				"-c", "listen_addresses=" + loopback,
				"-c", "port=" + port,
				"-c", "unix_socket_directories=",
			}, postgresOptions()...)
		},
		// Fast shutdown: SIGTERM would wait until the last client has gone.
		stopSignal:  syscall.SIGINT,
		crashSignal: syscall.SIGQUIT,
	}, nil
}
