package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	client "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqllock/sqllock/test/servers/freeport"
)

// etcdServers are one member, or three.
type etcdServers struct {
	*group

	all     []*process
	version string
}

// startEtcd starts members with etcd's defaults: each write waits for the disks of most members.
func startEtcd(ctx context.Context, failOver bool) (Server, error) {
	path, err := findProgram("etcd", "Debian: apt-get install etcd-server")
	if err != nil {
		return nil, err
	}

	s := &etcdServers{}

	s.group, err = newGroup(func(g *group) error {
		var peers, cluster []string

		for i := range members(failOver) {
			name := fmt.Sprintf("member%d", i)

			p, err := g.add(ctx, name)
			if err != nil {
				return err
			}

			port, err := freeport.Find(ctx)
			if err != nil {
				return err
			}

			peer := "http://" + loopback + ":" + port
			s.all, peers, cluster = append(s.all, p), append(peers, peer), append(cluster, name+"="+peer)
			p.ready = etcdReady
		}

		for i, p := range s.all {
			clients := "http://" + p.address
			p.command = []string{
				path, "--name", filepath.Base(p.folder), "--data-dir", filepath.Join(p.folder, "data"),
				"--listen-client-urls", clients, "--advertise-client-urls", clients,
				"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
				"--initial-cluster", strings.Join(cluster, ","),
			}
		}

		return startAll(ctx, s.all)
	})
	if err != nil {
		return nil, err
	}

	if err := etcdGet(ctx, s.all[0].address, "/version", func(answer etcdAnswer) error {
		s.version = answer.Version

		return nil
	}); err != nil {
		return nil, errors.Join(err, s.Close())
	}

	return s, nil
}

// members is how many belong together: with three, most of them are left when one fails.
func members(failOver bool) int {
	if failOver {
		return 3
	}

	return 1
}

func (s *etcdServers) Version() string {
	return fmt.Sprintf("etcd %s with its defaults, members: %d", s.version, len(s.all))
}

func (s *etcdServers) Endpoints() []string { return addresses(s.all) }

// Lag does nothing: no acknowledged write is lost while most members are there.
func (*etcdServers) Lag(context.Context) error { return nil }

// FailOver kills the leader, and returns when the others agree on another one and serve.
func (s *etcdServers) FailOver(ctx context.Context) error {
	if len(s.all) == 1 {
		return ErrNone
	}

	opened, err := client.New(client.Config{
		Endpoints: s.Endpoints(), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer opened.Close()

	var old *process

	var oldID uint64

	err = until(ctx, func(ctx context.Context) error {
		for _, p := range s.members {
			status, err := opened.Status(ctx, p.address)
			if err != nil {
				return err
			}

			if status.Header.MemberId == status.Leader {
				old, oldID = p, status.Leader

				return nil
			}
		}

		return errors.New("no member leads")
	})
	if err != nil {
		return fmt.Errorf("looking for etcd's leader: %w", err)
	}

	s.drop(old)

	err = until(ctx, func(ctx context.Context) error {
		for _, p := range s.members {
			status, err := opened.Status(ctx, p.address)
			if err != nil {
				return err
			}

			if status.Leader == 0 || status.Leader == oldID {
				return fmt.Errorf("the member at %s knows no new leader", p.address)
			}

			if err := etcdReady(ctx, p.address); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for a new leader of etcd: %w", err)
	}

	return nil
}

// etcdReady asks for the member's health, which needs a leader.
func etcdReady(ctx context.Context, address string) error {
	return etcdGet(ctx, address, "/health", func(answer etcdAnswer) error {
		if answer.Health != "true" {
			return fmt.Errorf("its health is %q", answer.Health)
		}

		return nil
	})
}

type etcdAnswer struct {
	Health  string `json:"health"`
	Version string `json:"etcdserver"`
}

func etcdGet(ctx context.Context, address, path string, look func(etcdAnswer) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, response.Status)
	}

	var answer etcdAnswer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}

	return look(answer)
}
