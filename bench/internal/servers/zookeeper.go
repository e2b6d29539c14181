package servers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sqllock/sqllock/bench/internal/contest"
)

// zooMain is the server's class.
const zooMain = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

// startZooKeeper is one server, with ZooKeeper's defaults: each write waits
// for the disk. Ticks are short, so that a lease of some seconds is allowed.
func startZooKeeper(ctx context.Context, kept string, unpack *sync.Mutex) (*Server, error) {
	started, err := program{
		onPath: "zkServer.sh", image: "zookeeper:3.9", debian: "zookeeper",
		inImage: func(port string) []string {
			return []string{"sh", "-c", "echo clientPort=" + port + " >> /conf/zoo.cfg; exec zkServer.sh start-foreground"}
		},
		command: func(root, folder, port string) (*exec.Cmd, error) {
			settings := filepath.Join(folder, "zoo.cfg")

			err := os.WriteFile(settings, []byte(strings.Join([]string{
				"tickTime=500", "initLimit=10", "syncLimit=5", "dataDir=" + filepath.Join(folder, "data"),
				"clientPort=" + port, "clientPortAddress=" + loopback, "admin.enableServer=false",
				"maxClientCnxns=0", "4lw.commands.whitelist=*", "",
			}, "\n")), 0o600)
			if err != nil {
				return nil, err
			}

			if root == "" {
				return exec.Command("zkServer.sh", "start-foreground", settings), nil //nolint:noctx // its stop ends it
			}

			java, err := exec.LookPath("java")
			if err != nil {
				return nil, errors.New("there is no java on PATH")
			}

			classes := filepath.Join(root, "usr/share/java") + "/*"

			return exec.Command(java, "-Xmx256m", "-cp", classes, zooMain, settings), nil //nolint:noctx // its stop ends it
		},
		ready: func(ctx context.Context, address string) (string, error) {
			answer, err := ask(ctx, address, "srvr\n")
			if err != nil {
				return "", err
			}

			version, ok := strings.CutPrefix(answer, "Zookeeper version: ")
			if !ok {
				return "", errors.New("it does not serve yet")
			}

			version, _, _ = strings.Cut(version, "-")

			return version, nil
		},
	}.start(ctx, kept, unpack)
	if err != nil {
		return nil, err
	}

	return &Server{
		Version: "ZooKeeper " + started.version + ", one server (" + started.from + ")",
		Address: contest.Address{DSN: started.address},
		close:   started.stop,
	}, nil
}
