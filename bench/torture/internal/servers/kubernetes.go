package servers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// APIServer is the first argument of this program when it is to be the API server's stand-in: see [RunAPIServer].
const APIServer = "apiserver"

// leaseServer is the stand-in of Kubernetes's API server.
type leaseServer struct {
	*group

	server *process
}

// startKubernetes starts this program once more, as the API server's stand-in.
func startKubernetes(ctx context.Context, failOver bool) (Server, error) {
	if failOver {
		return nil, ErrNone // the API server keeps nothing itself: what fails over is its etcd
	}

	path, err := os.Executable()
	if err != nil {
		return nil, err
	}

	s := &leaseServer{}

	s.group, err = newGroup(func(g *group) (err error) {
		if s.server, err = g.add(ctx, "apiserver"); err != nil {
			return err
		}

		s.server.command = []string{path, APIServer, s.server.address, filepath.Join(s.server.folder, "leases.json")}
		s.server.ready = leasesReady

		return startAll(ctx, g.members)
	})
	if err != nil {
		return nil, err
	}

	return s, nil
}

func (*leaseServer) Version() string {
	return "a stand-in of Kubernetes's API server: its rules for leases, kept in a file that is synced before it answers"
}

func (s *leaseServer) Endpoints() []string { return []string{s.server.address} }

// Lag does nothing: there is no standby.
func (*leaseServer) Lag(context.Context) error { return nil }

// FailOver is not to be had.
func (*leaseServer) FailOver(context.Context) error { return ErrNone }

func leasesReady(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", response.Status)
	}

	return nil
}
