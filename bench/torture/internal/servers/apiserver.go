package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	refusals "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// RunAPIServer serves leases as Kubernetes's API server does, until the process ends. The arguments are the address to listen at
// and the file that keeps the leases.
func RunAPIServer(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: %s ADDRESS FILE", APIServer)
	}

	leases, err := openLeases(args[1])
	if err != nil {
		return err
	}

	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", args[0])
	if err != nil {
		return err
	}

	server := &http.Server{Handler: leases.handler(), ReadHeaderTimeout: time.Minute}

	return server.Serve(listener)
}

// leases are all, by namespace and name. Each write has a number of its own, which is the resourceVersion of what it wrote.
type leases struct {
	file string

	mu    sync.Mutex
	state leaseState
}

type leaseState struct {
	Revision int64
	Leases   map[string]coordination.Lease
}

func openLeases(file string) (*leases, error) {
	l := &leases{file: file, state: leaseState{Leases: make(map[string]coordination.Lease)}}

	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}

	if err != nil {
		return nil, err
	}

	return l, json.Unmarshal(text, &l.state)
}

func (l *leases) handler() http.Handler {
	const all = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		lease, err := l.get(r.PathValue("namespace"), r.PathValue("name"))
		answer(w, http.StatusOK, lease, err)
	})
	mux.HandleFunc("POST "+all, func(w http.ResponseWriter, r *http.Request) {
		lease, err := read(r)
		if err == nil {
			lease, err = l.create(lease)
		}

		answer(w, http.StatusCreated, lease, err)
	})
	mux.HandleFunc("PUT "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		lease, err := read(r)
		if err == nil && lease.Name != r.PathValue("name") {
			err = refusals.NewBadRequest("the name of the object does not match that in the URL")
		}

		if err == nil {
			lease, err = l.update(lease)
		}

		answer(w, http.StatusOK, lease, err)
	})

	return mux
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: coordination.GroupName, Resource: "leases"}
}

// read reads the lease of a request.
func read(r *http.Request) (lease coordination.Lease, err error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return lease, refusals.NewBadRequest(err.Error())
	}

	// Clients send protobuf by default, and take JSON too.
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &lease); err != nil {
		return lease, refusals.NewBadRequest("the object is no lease: " + err.Error())
	}

	if lease.Name == "" {
		return lease, refusals.NewBadRequest("the object has no name")
	}

	namespace := r.PathValue("namespace")
	if lease.Namespace != "" && lease.Namespace != namespace {
		return lease, refusals.NewBadRequest("the namespace of the object does not match that in the URL")
	}

	lease.Namespace = namespace

	return lease, nil
}

// answer writes the lease, or why there is none, in the form that clients know.
func answer(w http.ResponseWriter, code int, lease coordination.Lease, err error) {
	lease.TypeMeta = meta.TypeMeta{Kind: "Lease", APIVersion: coordination.SchemeGroupVersion.String()}

	var body any = lease

	if err != nil {
		var refused *refusals.StatusError
		if !errors.As(err, &refused) {
			refused = refusals.NewInternalError(err)
		}

		status := refused.ErrStatus
		status.TypeMeta = meta.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code, body = int(status.Code), status
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone finds out by itself
}

func key(namespace, name string) string { return namespace + "/" + name }

func (l *leases) get(namespace, name string) (coordination.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	lease, ok := l.state.Leases[key(namespace, name)]
	if !ok {
		return lease, refusals.NewNotFound(resource(), name)
	}

	return lease, nil
}

func (l *leases) create(lease coordination.Lease) (coordination.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if lease.ResourceVersion != "" {
		return lease, refusals.NewBadRequest("resourceVersion should not be set on objects to be created")
	}

	if _, ok := l.state.Leases[key(lease.Namespace, lease.Name)]; ok {
		return lease, refusals.NewAlreadyExists(resource(), lease.Name)
	}

	lease.UID = types.UID("lease-" + strconv.FormatInt(l.state.Revision+1, 10))
	lease.CreationTimestamp = meta.Now()

	return l.write(lease)
}

// update has the rule that elections rest on: who writes has to have seen the last write.
func (l *leases) update(lease coordination.Lease) (coordination.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	old, ok := l.state.Leases[key(lease.Namespace, lease.Name)]

	switch {
	case !ok:
		return lease, refusals.NewNotFound(resource(), lease.Name)
	case lease.ResourceVersion == "":
		return lease, refusals.NewBadRequest("metadata.resourceVersion: must be specified for an update")
	case lease.ResourceVersion != old.ResourceVersion:
		return lease, refusals.NewConflict(resource(), lease.Name, errors.New("the object has been modified; read it again"))
	}

	lease.UID, lease.CreationTimestamp = old.UID, old.CreationTimestamp

	return l.write(lease)
}

// write keeps the lease, on disk before in memory: nobody has seen what a crash takes away.
func (l *leases) write(lease coordination.Lease) (coordination.Lease, error) {
	next := leaseState{Revision: l.state.Revision + 1, Leases: make(map[string]coordination.Lease, len(l.state.Leases)+1)}
	for key, other := range l.state.Leases {
		next.Leases[key] = other
	}

	lease.ResourceVersion = strconv.FormatInt(next.Revision, 10)
	next.Leases[key(lease.Namespace, lease.Name)] = lease

	text, err := json.Marshal(next)
	if err != nil {
		return lease, err
	}

	if err := replace(l.file, text); err != nil {
		return lease, err
	}

	l.state = next

	return lease, nil
}

// replace writes a file anew: after a crash it is the old one or the new one, and the new one once this has returned.
func replace(file string, text []byte) error {
	whole, err := os.CreateTemp(filepath.Dir(file), "leases-")
	if err != nil {
		return err
	}

	_, err = whole.Write(text)
	if err := errors.Join(err, whole.Sync(), whole.Close()); err != nil {
		return err
	}

	if err := os.Rename(whole.Name(), file); err != nil {
		return err
	}

	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}

	return errors.Join(folder.Sync(), folder.Close())
}
