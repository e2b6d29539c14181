package servers_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	driver "github.com/redis/go-redis/v9"
	client "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	coordination "k8s.io/api/coordination/v1"
	refusals "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	leases "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/sqllock/sqllock/bench/torture/internal/servers"
)

func start(t *testing.T, kind string, failOver bool) servers.Server {
	t.Helper()

	server, err := servers.Start(t.Context(), kind, failOver)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Log(server.Version())

	return server
}

// store writes and reads values on the servers at the endpoints.
type store interface {
	write(ctx context.Context, endpoints []string, key string) error
	// read says whether the key is there.
	read(ctx context.Context, endpoints []string, key string) (bool, error)
}

func put(t *testing.T, s store, server servers.Server, key string) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	if err := s.write(ctx, server.Endpoints(), key); err != nil {
		t.Fatalf("writing %s: %v", key, err)
	}
}

func has(t *testing.T, s store, server servers.Server, key string, want bool) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	got, err := s.read(ctx, server.Endpoints(), key)
	if err != nil {
		t.Fatalf("reading %s: %v", key, err)
	}

	if got != want {
		t.Errorf("%s is there: %t, want %t", key, got, want)
	}
}

func restart(t *testing.T, server servers.Server) {
	t.Helper()

	before := server.Endpoints()

	if err := server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}

	if after := server.Endpoints(); !slices.Equal(before, after) {
		t.Errorf("after a restart it is at %v, before it was at %v", after, before)
	}
}

// TestRestart writes, kills and starts again.
func TestRestart(t *testing.T) {
	t.Parallel()

	for kind, s := range map[string]store{"etcd": etcdStore{}, "zookeeper": zooStore{}, "kubernetes": leaseStore{}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			server := start(t, kind, false)
			put(t, s, server, "kept")
			restart(t, server)
			has(t, s, server, "kept", true)
			put(t, s, server, "more")
		})
	}
}

// TestRestartRedis says what a crash of Redis with its defaults takes away: all since the last snapshot.
func TestRestartRedis(t *testing.T) {
	t.Parallel()

	for _, kind := range []string{"redis", "redis3"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			server := start(t, kind, false)
			put(t, redisStore{}, server, "saved")

			for _, endpoint := range server.Endpoints() {
				if err := redisAt(t, endpoint).Save(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}

			put(t, redisStore{}, server, "unsaved")
			restart(t, server)
			has(t, redisStore{}, server, "saved", true)
			has(t, redisStore{}, server, "unsaved", false)
		})
	}
}

// TestFailOverRedis loses what came after the lag, on the server that fails and on no other.
func TestFailOverRedis(t *testing.T) {
	t.Parallel()

	for kind, n := range map[string]int{"redis": 1, "redis3": 3} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			server := start(t, kind, true)
			before := server.Endpoints()

			if len(before) != n {
				t.Fatalf("it is at %v, want %d endpoints", before, n)
			}

			put(t, redisStore{}, server, "early")

			if err := server.Lag(t.Context()); err != nil {
				t.Fatal(err)
			}

			put(t, redisStore{}, server, "late")
			has(t, redisStore{}, server, "late", true)

			if err := server.FailOver(t.Context()); err != nil {
				t.Fatal(err)
			}

			after := server.Endpoints()
			if len(after) != n || after[0] == before[0] || !slices.Equal(after[1:], before[1:]) {
				t.Fatalf("after a fail-over it is at %v, before it was at %v", after, before)
			}

			has(t, redisStore{}, server, "early", true)

			for i, endpoint := range after {
				found, err := redisAt(t, endpoint).Exists(t.Context(), "late").Result()
				if err != nil {
					t.Fatal(err)
				}

				if (found == 1) != (i > 0) {
					t.Errorf("server %d has the late write: %t", i, found == 1)
				}
			}

			put(t, redisStore{}, server, "new")
			restart(t, server)
		})
	}
}

// TestFailOverRedisThatFollows loses nothing that the replica got.
func TestFailOverRedisThatFollows(t *testing.T) {
	t.Parallel()

	server := start(t, "redis", true)
	put(t, redisStore{}, server, "kept")

	if err := redisAt(t, server.Endpoints()[0]).Wait(t.Context(), 1, 10*time.Second).Err(); err != nil {
		t.Fatal(err)
	}

	if err := server.FailOver(t.Context()); err != nil {
		t.Fatal(err)
	}

	has(t, redisStore{}, server, "kept", true)
}

// TestFailOver of those that lose no acknowledged write.
func TestFailOver(t *testing.T) {
	t.Parallel()

	for kind, s := range map[string]store{"etcd": etcdStore{}, "zookeeper": zooStore{}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()

			server := start(t, kind, true)
			before := server.Endpoints()
			put(t, s, server, "early")
			restart(t, server)

			if err := server.Lag(t.Context()); err != nil {
				t.Fatal(err)
			}

			put(t, s, server, "late")

			if err := server.FailOver(t.Context()); err != nil {
				t.Fatal(err)
			}

			if after := server.Endpoints(); !slices.Equal(before, after) || len(after) != 3 {
				t.Errorf("after a fail-over it is at %v, before it was at %v", after, before)
			}

			has(t, s, server, "early", true)
			has(t, s, server, "late", true)
			put(t, s, server, "new")
		})
	}
}

// TestNone has no fail-over of what has none.
func TestNone(t *testing.T) {
	t.Parallel()

	if _, err := servers.Start(t.Context(), "kubernetes", true); !errors.Is(err, servers.ErrNone) {
		t.Errorf("Start of kubernetes that fails over = %v, want %v", err, servers.ErrNone)
	}

	for _, kind := range []string{"redis", "etcd", "zookeeper"} {
		if err := start(t, kind, false).FailOver(t.Context()); !errors.Is(err, servers.ErrNone) {
			t.Errorf("FailOver of one %s = %v, want %v", kind, err, servers.ErrNone)
		}
	}
}

type redisStore struct{}

func redisAt(t *testing.T, endpoint string) *driver.Client {
	t.Helper()

	opened := driver.NewClient(&driver.Options{Addr: endpoint})
	t.Cleanup(func() { _ = opened.Close() })

	return opened
}

func (redisStore) write(ctx context.Context, endpoints []string, key string) (err error) {
	for _, endpoint := range endpoints {
		opened := driver.NewClient(&driver.Options{Addr: endpoint})
		err = errors.Join(err, opened.Set(ctx, key, "x", 0).Err(), opened.Close())
	}

	return err
}

// read looks for it on the first server.
func (redisStore) read(ctx context.Context, endpoints []string, key string) (bool, error) {
	opened := driver.NewClient(&driver.Options{Addr: endpoints[0]})
	defer opened.Close()

	n, err := opened.Exists(ctx, key).Result()

	return n == 1, err
}

type etcdStore struct{}

func (etcdStore) open(endpoints []string) (*client.Client, error) {
	return client.New(client.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func (s etcdStore) write(ctx context.Context, endpoints []string, key string) error {
	opened, err := s.open(endpoints)
	if err != nil {
		return err
	}
	defer opened.Close()

	_, err = opened.Put(ctx, key, "x")

	return err
}

func (s etcdStore) read(ctx context.Context, endpoints []string, key string) (bool, error) {
	opened, err := s.open(endpoints)
	if err != nil {
		return false, err
	}
	defer opened.Close()

	found, err := opened.Get(ctx, key)
	if err != nil {
		return false, err
	}

	return found.Count == 1, nil
}

type zooStore struct{}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (zooStore) do(ctx context.Context, endpoints []string, do func(*zk.Conn) error) error {
	conn, events, err := zk.Connect(endpoints, 5*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer conn.Close()

	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return do(conn)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s zooStore) write(ctx context.Context, endpoints []string, key string) error {
	return s.do(ctx, endpoints, func(conn *zk.Conn) error {
		_, err := conn.Create("/"+key, nil, 0, zk.WorldACL(zk.PermAll))

		return err
	})
}

func (s zooStore) read(ctx context.Context, endpoints []string, key string) (found bool, err error) {
	err = s.do(ctx, endpoints, func(conn *zk.Conn) error {
		if _, err := conn.Sync("/" + key); err != nil {
			return err
		}

		found, _, err = conn.Exists("/" + key)

		return err
	})

	return found, err
}

type leaseStore struct{}

func (leaseStore) open(endpoints []string) (leases.LeaseInterface, error) {
	opened, err := leases.NewForConfig(&rest.Config{Host: "http://" + endpoints[0]})
	if err != nil {
		return nil, err
	}

	return opened.Leases("default"), nil
}

func (s leaseStore) write(ctx context.Context, endpoints []string, key string) error {
	opened, err := s.open(endpoints)
	if err != nil {
		return err
	}

	_, err = opened.Create(ctx, &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: key}}, meta.CreateOptions{})

	return err
}

func (s leaseStore) read(ctx context.Context, endpoints []string, key string) (bool, error) {
	opened, err := s.open(endpoints)
	if err != nil {
		return false, err
	}

	_, err = opened.Get(ctx, key, meta.GetOptions{})
	if refusals.IsNotFound(err) {
		return false, nil
	}

	return err == nil, err
}

// TestAPIServer sees that the stand-in refuses what Kubernetes's API server refuses, in a form that its client understands.
func TestAPIServer(t *testing.T) {
	t.Parallel()

	opened, err := leaseStore{}.open(start(t, "kubernetes", false).Endpoints())
	if err != nil {
		t.Fatal(err)
	}

	ctx := t.Context()

	if _, err := opened.Get(ctx, "a", meta.GetOptions{}); !refusals.IsNotFound(err) {
		t.Errorf("Get of none = %v, want not found", err)
	}

	lease := &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: "a"}}

	made, err := opened.Create(ctx, lease, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := opened.Create(ctx, lease, meta.CreateOptions{}); !refusals.IsAlreadyExists(err) {
		t.Errorf("Create of one that is there = %v, want already exists", err)
	}

	now := meta.NowMicro()
	made.Spec.RenewTime = &now

	updated, err := opened.Update(ctx, made, meta.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if updated.ResourceVersion == made.ResourceVersion || updated.UID != made.UID {
		t.Errorf("an update made %v of %v", updated.ObjectMeta, made.ObjectMeta)
	}

	if _, err := opened.Update(ctx, made, meta.UpdateOptions{}); !refusals.IsConflict(err) {
		t.Errorf("Update of what another one has written since = %v, want a conflict", err)
	}

	made.ResourceVersion = ""
	if _, err := opened.Update(ctx, made, meta.UpdateOptions{}); err == nil {
		t.Error("Update without a resourceVersion was accepted")
	}

	if _, err := opened.Update(ctx, &coordination.Lease{
		ObjectMeta: meta.ObjectMeta{Name: "b", ResourceVersion: "1"},
	}, meta.UpdateOptions{}); !refusals.IsNotFound(err) {
		t.Errorf("Update of none = %v, want not found", err)
	}

	got, err := opened.Get(ctx, "a", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if !got.Spec.RenewTime.Equal(updated.Spec.RenewTime) || got.ResourceVersion != updated.ResourceVersion {
		t.Errorf("Get = %v, want %v", got, updated)
	}
}

// TestMain lets the test's binary be the API server's too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == servers.APIServer {
		if err := servers.RunAPIServer(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}

		return
	}

	os.Exit(m.Run())
}
