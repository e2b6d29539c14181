package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

func mysqlFolders() []string {
	return []string{
		"/usr/sbin", "/usr/libexec", "/usr/bin", "/usr/local/sbin", "/usr/local/libexec", "/usr/local/bin",
		"/usr/local/mysql/bin", "/usr/local/mariadb/bin",
		"/opt/homebrew/opt/m*/bin", "/usr/local/opt/m*/bin",
	}
}

// isMariaDB reads the answer to --version. MariaDB installs itself as mysqld too, and says what it is only
// there: "Ver 10.11.14-MariaDB-0+deb12u2".
func isMariaDB(version string) bool { return strings.Contains(version, "MariaDB") }

func locateMySQL(ctx context.Context) (installation, error) {
	program, err := locateProgram(ctx, func(version string) bool { return !isMariaDB(version) },
		[]string{"mysqld"}, mysqlFolders())
	if err != nil {
		return installation{}, err
	}

	return installation{
		program: program,
		users:   []string{"mysql"},
		prepare: func(ctx context.Context, folder, password string) (*exec.Cmd, error) {
			return exec.CommandContext(ctx, program, "--no-defaults", "--initialize-insecure",
				"--datadir="+filepath.Join(folder, "data")), writeInitFile(folder, password)
		},
		options:     func(folder, port string) []string { return append(mysqlProgramOptions(folder, port), "--mysqlx=OFF") },
		stopSignal:  syscall.SIGTERM,
		crashSignal: syscall.SIGKILL,
	}, nil
}

func locateMariaDB(ctx context.Context) (installation, error) {
	program, err := locateProgram(ctx, isMariaDB, []string{"mariadbd", "mysqld"}, mysqlFolders())
	if err != nil {
		return installation{}, err
	}

	install, err := locateInstallDB(program)
	if err != nil {
		return installation{}, err
	}

	return installation{
		program: program,
		users:   []string{"mysql"},
		prepare: func(ctx context.Context, folder, password string) (*exec.Cmd, error) {
			// "normal": root gets in with a password, rather than by the account at the other end of a socket.
			return exec.CommandContext(ctx, install, "--no-defaults", "--skip-test-db", "--skip-name-resolve",
				"--auth-root-authentication-method=normal",
				"--datadir="+filepath.Join(folder, "data")), writeInitFile(folder, password)
		},
		options:     mysqlProgramOptions,
		stopSignal:  syscall.SIGTERM,
		crashSignal: syscall.SIGKILL,
	}, nil
}

func locateInstallDB(server string) (string, error) {
	prefix := filepath.Dir(filepath.Dir(server))

	found := candidates([]string{"mariadb-install-db", "mysql_install_db"},
		[]string{filepath.Join(prefix, "bin"), filepath.Join(prefix, "scripts")})
	if len(found) == 0 {
		return "", absentError("there is no mariadb-install-db for " + server)
	}

	return found[0], nil
}

func mysqlProgramOptions(folder, port string) []string {
	return append([]string{
		"--no-defaults", // must be the first
		"--datadir=" + filepath.Join(folder, "data"),
		"--tmpdir=" + folder,
		"--bind-address=" + loopback,
		"--port=" + port,
		"--socket=" + filepath.Join(folder, "socket"),
		"--pid-file=" + filepath.Join(folder, "pid"),
		"--init-file=" + filepath.Join(folder, "init.sql"),
	}, mysqlOptions()...)
}

// writeInitFile writes the statements that the server runs before it lets clients in. The server takes a
// client from 127.0.0.1 for one from localhost, where the account is.
func writeInitFile(folder, password string) error {
	text := fmt.Sprintf("ALTER USER 'root'@'localhost' IDENTIFIED BY '%s';\n"+
		"CREATE DATABASE IF NOT EXISTS sqllock;\n", password)

	return os.WriteFile(filepath.Join(folder, "init.sql"), []byte(text), 0o600)
}
