package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	driver "github.com/redis/go-redis/v9"
)

// redisServers are primaries that know nothing of each other. The first one may have a replica.
type redisServers struct {
	*group

	primaries []*process
	replica   *process
	version   string
}

// startRedis starts Redis as it comes: it keeps snapshots after an hour, five minutes or one minute, by the number of writes,
// and no log of writes.
func startRedis(ctx context.Context, servers int, failOver bool) (Server, error) {
	path, err := findProgram("redis-server", "Debian: apt-get install redis-server")
	if err != nil {
		return nil, err
	}

	s := &redisServers{}

	s.group, err = newGroup(func(g *group) error {
		add := func(name string, more ...string) (*process, error) {
			p, err := g.add(ctx, name)
			if err != nil {
				return nil, err
			}

			p.command = append(redisCommand(path, p), more...)
			p.ready = redisReady

			return p, startAll(ctx, []*process{p})
		}

		for i := range servers {
			p, err := add(fmt.Sprintf("primary%d", i))
			if err != nil {
				return err
			}

			s.primaries = append(s.primaries, p)
		}

		if failOver {
			var err error
			if s.replica, err = add("replica", "--replicaof", loopback+" "+s.primaries[0].port()); err != nil {
				return err
			}

			return until(ctx, s.followed)
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	if s.version, err = redisInfo(ctx, s.primaries[0].address, "server", "redis_version"); err != nil {
		return nil, errors.Join(err, s.Close())
	}

	return s, nil
}

func redisCommand(path string, p *process) []string {
	return []string{
		path, "--port", p.port(), "--bind", loopback, "--dir", p.folder,
		"--repl-diskless-sync-delay", "0", // a replica does not wait for another one
	}
}

func (s *redisServers) Version() string {
	text := "Redis " + s.version + " with its defaults (snapshots, appendonly no)"
	if len(s.primaries) > 1 {
		text += fmt.Sprintf(", %d independent servers", len(s.primaries))
	}

	if s.replica != nil {
		text += ", a replica"
	}

	return text
}

func (s *redisServers) Endpoints() []string { return addresses(s.primaries) }

// Restart brings all back, and waits until the replica follows again, if it still does.
func (s *redisServers) Restart(ctx context.Context) error {
	if err := s.group.Restart(ctx); err != nil {
		return err
	}

	if s.replica == nil {
		return nil
	}

	return until(ctx, s.followed)
}

// Lag ends the replication: the replica keeps what it has and gets no more.
func (s *redisServers) Lag(ctx context.Context) error {
	if s.replica == nil {
		return errors.New("this server was started without a replica: start it with fail-over")
	}

	err := redisDo(s.primaries[0].address, func(client *driver.Client) error {
		n, err := client.Wait(ctx, 1, 10*time.Second).Result()
		if err == nil && n < 1 {
			err = errors.New("the replica has not got all writes in 10 s")
		}

		return err
	})
	if err != nil {
		return err
	}

	return s.promote(ctx)
}

// FailOver kills the first primary. Its replica is in its place from now on.
func (s *redisServers) FailOver(ctx context.Context) error {
	if s.replica == nil {
		return ErrNone
	}

	s.drop(s.primaries[0])

	if err := s.promote(ctx); err != nil {
		return err
	}

	s.primaries[0], s.replica = s.replica, nil

	return nil
}

// promote makes the replica a primary, now and after it is started again.
func (s *redisServers) promote(ctx context.Context) error {
	s.replica.command = redisCommand(s.replica.command[0], s.replica)

	return redisDo(s.replica.address, func(client *driver.Client) error {
		return client.ReplicaOf(ctx, "NO", "ONE").Err()
	})
}

// followed is nil when the replica has what the primary has. One that was promoted follows nobody.
func (s *redisServers) followed(ctx context.Context) error {
	role, err := redisInfo(ctx, s.replica.address, "replication", "role")
	if err != nil || role == "master" {
		return err
	}

	link, err := redisInfo(ctx, s.replica.address, "replication", "master_link_status")
	if err != nil {
		return err
	}

	if link != "up" {
		return fmt.Errorf("the replica's link is %s", link)
	}

	return nil
}

func redisReady(ctx context.Context, address string) error {
	// While it loads its data, it refuses commands.
	return redisDo(address, func(client *driver.Client) error { return client.Ping(ctx).Err() })
}

func redisDo(address string, do func(*driver.Client) error) (err error) {
	client := driver.NewClient(&driver.Options{Addr: address, PoolSize: 1, MaxRetries: -1})
	defer func() { err = errors.Join(err, client.Close()) }()

	return do(client)
}

// redisInfo reads a line of INFO.
func redisInfo(ctx context.Context, address, section, name string) (value string, err error) {
	err = redisDo(address, func(client *driver.Client) error {
		info, err := client.Info(ctx, section).Result()
		if err != nil {
			return err
		}

		for line := range strings.Lines(info) {
			if found, ok := strings.CutPrefix(line, name+":"); ok {
				value = strings.TrimSpace(found)

				return nil
			}
		}

		return fmt.Errorf("INFO %s has no %s", section, name)
	})

	return value, err
}
