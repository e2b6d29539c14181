package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/test/servers/freeport"
)

const (
	// zooMain is the server's class.
	zooMain = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
	// zooDebian are the classes in Debian's package; its manifest names those that it needs.
	zooDebian = "/usr/share/java/zookeeper.jar"
)

// zooServers are one server, or three.
type zooServers struct {
	*group

	all     []*process
	version string
}

// startZooKeeper starts servers with ZooKeeper's defaults, but for the tick: a session may be as short as two of them.
func startZooKeeper(ctx context.Context, failOver bool) (Server, error) {
	java, err := findProgram("java", "Debian: apt-get install default-jre-headless")
	if err != nil {
		return nil, err
	}

	classes, err := zooClasses()
	if err != nil {
		return nil, err
	}

	s := &zooServers{}

	s.group, err = newGroup(func(g *group) error {
		var cluster []string

		for i := range members(failOver) {
			p, err := g.add(ctx, fmt.Sprintf("server%d", i+1))
			if err != nil {
				return err
			}

			peer, err := freeport.Find(ctx)
			if err != nil {
				return err
			}

			vote, err := freeport.Find(ctx)
			if err != nil {
				return err
			}

			s.all = append(s.all, p)
			cluster = append(cluster, fmt.Sprintf("server.%d=%s:%s:%s", i+1, loopback, peer, vote))
		}

		if len(cluster) == 1 {
			cluster = nil // one server alone has no peers
		}

		for i, p := range s.all {
			settings, err := zooSettings(p, i+1, cluster)
			if err != nil {
				return err
			}

			p.command = []string{java, "-Xmx256m", "-XX:+UseSerialGC", "-cp", classes, zooMain, settings}
			p.ready = func(ctx context.Context, address string) error {
				_, err := zooField(ctx, address, "Mode")

				return err
			}
		}

		return startAll(ctx, s.all)
	})
	if err != nil {
		return nil, err
	}

	version, err := zooField(ctx, s.all[0].address, "Zookeeper version")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}

	s.version, _, _ = strings.Cut(version, "-")

	return s, nil
}

// zooClasses is the path of the server's classes: those beside zkServer.sh, or Debian's.
func zooClasses() (string, error) {
	if script, err := exec.LookPath("zkServer.sh"); err == nil {
		if script, err = filepath.EvalSymlinks(script); err != nil {
			return "", err
		}

		library := filepath.Join(filepath.Dir(filepath.Dir(script)), "lib")
		if found, err := filepath.Glob(filepath.Join(library, "zookeeper*.jar")); err == nil && len(found) > 0 {
			return library + "/*", nil
		}
	}

	if _, err := os.Stat(zooDebian); err != nil {
		return "", fmt.Errorf("there is no ZooKeeper: no zkServer.sh on PATH with its lib folder, no %s: install it "+
			"(Debian: apt-get install zookeeper)", zooDebian)
	}

	return zooDebian, nil
}

// zooSettings writes the file of settings, and returns its path.
func zooSettings(p *process, id int, cluster []string) (string, error) {
	data := filepath.Join(p.folder, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", err
	}

	lines := append([]string{
		"tickTime=500", "initLimit=20", "syncLimit=10", "dataDir=" + data,
		"clientPort=" + p.port(), "clientPortAddress=" + loopback, "admin.enableServer=false",
		"maxClientCnxns=0", "4lw.commands.whitelist=srvr",
	}, cluster...)

	if len(cluster) > 0 {
		if err := os.WriteFile(filepath.Join(data, "myid"), []byte(strconv.Itoa(id)), 0o600); err != nil {
			return "", err
		}
	}

	settings := filepath.Join(p.folder, "zoo.cfg")

	return settings, os.WriteFile(settings, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func (s *zooServers) Version() string {
	return fmt.Sprintf("ZooKeeper %s with its defaults and tickTime=500, servers: %d", s.version, len(s.all))
}

func (s *zooServers) Endpoints() []string { return addresses(s.all) }

// Lag does nothing: no acknowledged write is lost while most servers are there.
func (*zooServers) Lag(context.Context) error { return nil }

// FailOver kills the leader, and returns when the others have another one and serve.
func (s *zooServers) FailOver(ctx context.Context) error {
	if len(s.all) == 1 {
		return ErrNone
	}

	var old *process

	err := until(ctx, func(ctx context.Context) (err error) {
		old, err = s.leader(ctx)

		return err
	})
	if err != nil {
		return fmt.Errorf("looking for ZooKeeper's leader: %w", err)
	}

	s.drop(old)

	err = until(ctx, func(ctx context.Context) error {
		_, err := s.leader(ctx)

		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for a new leader of ZooKeeper: %w", err)
	}

	return nil
}

// leader finds the one that leads. All others have to follow.
func (s *zooServers) leader(ctx context.Context) (*process, error) {
	var found *process

	for _, p := range s.members {
		mode, err := zooField(ctx, p.address, "Mode")
		if err != nil {
			return nil, err
		}

		if mode == "leader" {
			found = p
		}
	}

	if found == nil {
		return nil, errors.New("no server leads")
	}

	return found, nil
}

// zooField reads a line of what a server tells of itself when it serves.
func zooField(ctx context.Context, address, name string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()

	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}

	if _, err := conn.Write([]byte("srvr")); err != nil {
		return "", err
	}

	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}

	for line := range strings.Lines(string(answer)) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value), nil
		}
	}

	return "", fmt.Errorf("srvr has no %q: it does not serve yet", name)
}
