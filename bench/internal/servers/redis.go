package servers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	driver "github.com/redis/go-redis/v9"

	"github.com/sqllock/sqllock/bench/internal/contest"
)

// startRedis keeps nothing on disk, as those who lock with Redis mostly have
// it: the figures are those of a lock that a crash of the server forgets.
func startRedis(ctx context.Context, kept string, unpack *sync.Mutex) (*Server, error) {
	options := func(port string) []string {
		return []string{"--port", port, "--save", "", "--appendonly", "no"}
	}

	started, err := program{
		onPath: "redis-server", image: "redis:8", debian: "redis-server",
		inImage: options,
		command: func(root, folder, port string) (*exec.Cmd, error) {
			cmd := exec.Command("redis-server") //nolint:noctx // its stop ends it
			if root != "" {
				cmd = exec.Command(filepath.Join(root, "usr/bin/redis-server")) //nolint:noctx // its stop ends it

				libraries, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-*"))
				if err != nil {
					return nil, err
				}

				cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
			}

			cmd.Args = append(cmd.Args, append(options(port), "--bind", loopback, "--dir", folder)...)

			return cmd, nil
		},
		ready: func(ctx context.Context, address string) (string, error) {
			answer, err := ask(ctx, address, "INFO server\r\n")
			if err != nil {
				return "", err
			}

			return redisField(answer, "redis_version")
		},
	}.start(ctx, kept, unpack)
	if err != nil {
		return nil, err
	}

	client := driver.NewClient(&driver.Options{Addr: started.address, PoolSize: 1})

	asked := 0.0
	number := func(ctx context.Context, section, field string) (float64, error) {
		asked++ // also counted

		answer, err := client.Info(ctx, section).Result()
		if err != nil {
			return -1, err
		}

		text, err := redisField(answer, field)
		if err != nil {
			return -1, err
		}

		return strconv.ParseFloat(text, 64)
	}

	return &Server{
		Version: "Redis " + started.version + ", appendonly=no, save=\"\" (" + started.from + ")",
		Address: contest.Address{DSN: started.address},
		statistics: func(ctx context.Context) (Statistics, error) {
			found := Unknown()

			var err error
			found.Statements, err = number(ctx, "stats", "total_commands_processed")
			found.Statements -= asked

			return found, err
		},
		connections: func(ctx context.Context) (int, error) {
			n, err := number(ctx, "clients", "connected_clients")

			return int(n) - 1, err
		},
		close: func(ctx context.Context) error { return errors.Join(client.Close(), started.stop(ctx)) },
	}, nil
}

// redisField reads a line of INFO.
func redisField(info, name string) (string, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}

	return "", errors.New("INFO has no " + name)
}
