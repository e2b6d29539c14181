package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/sqllock/sqllock/bench/internal/contest"
	"github.com/sqllock/sqllock/test/servers/freeport"
)

// startEtcd is one member, with etcd's defaults: each write waits for the disk.
func startEtcd(ctx context.Context, kept string, unpack *sync.Mutex) (*Server, error) {
	peer, err := freeport.Find(ctx)
	if err != nil {
		return nil, err
	}

	options := func(host, port string) []string {
		clients, peers := "http://"+host+":"+port, "http://"+loopback+":"+peer

		return []string{
			"--name", "bench", "--listen-client-urls", clients, "--advertise-client-urls", clients,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "bench=" + peers,
		}
	}

	started, err := program{
		onPath: "etcd", image: "quay.io/coreos/etcd:v3.6.0", debian: "etcd-server",
		inImage: func(port string) []string { return append([]string{"etcd"}, options("0.0.0.0", port)...) },
		command: func(root, folder, port string) (*exec.Cmd, error) {
			cmd := exec.Command("etcd") //nolint:noctx // its stop ends it
			if root != "" {
				cmd = exec.Command(filepath.Join(root, "usr/bin/etcd")) //nolint:noctx // its stop ends it
			}

			cmd.Args = append(cmd.Args, append(options(loopback, port), "--data-dir", filepath.Join(folder, "data"))...)

			return cmd, nil
		},
		ready: etcdReady,
	}.start(ctx, kept, unpack)
	if err != nil {
		return nil, err
	}

	return &Server{
		Version: "etcd " + started.version + ", one member (" + started.from + ")",
		Address: contest.Address{DSN: started.address},
		close:   started.stop,
	}, nil
}

func etcdReady(ctx context.Context, address string) (string, error) {
	// It answers for its health only when it has a leader.
	for _, path := range []string{"/health", "/version"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			return "", err
		}

		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()

		if response.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s answers %s", path, response.Status)
		}

		var found struct {
			Server string `json:"etcdserver"`
		}

		if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
			return "", err
		}

		if found.Server != "" {
			return found.Server, nil
		}
	}

	return "", fmt.Errorf("%s does not say its version", address)
}
