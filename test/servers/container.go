package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
)

// makerLabel marks our containers; its value is the identity of the process that made them.
const makerLabel = "io.github.sqllock.test.maker"

const loopback = "127.0.0.1"

// containers starts servers as containers. The engine is looked for once, for all databases.
type containers struct {
	maker    identity
	password string
	engine   func() (*dockerEngine, error)
}

// dockerEngine is a Docker engine that answers.
type dockerEngine struct {
	client *testcontainers.DockerClient
	host   string // where its published ports are
}

func newContainers(maker identity, password string) *containers {
	c := &containers{maker: maker, password: password}
	c.engine = sync.OnceValues(c.connect)

	return c
}

// configure sets up testcontainers, once: its settings are variables without a lock, and sets of servers may
// be started at the same time.
var configure = sync.OnceFunc(func() {
	// The reaper is a container more, whose image has to be had too; we clean up ourselves. Read once, by
	// whatever first asks testcontainers for anything.
	setDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
	tclog.SetDefault(tclog.NewNoopLogger()) // its banner and a line per step; errors are returned all the same
})

// connect looks for an engine, and removes what killed runs left there.
func (c *containers) connect() (*dockerEngine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	if err := givenHostAnswers(ctx); err != nil {
		return nil, err
	}

	configure()

	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, absentError("no Docker engine answers: " + err.Error())
	}

	info, err := docker.Client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, absentError("no Docker engine answers: " + err.Error())
	}

	// In a container testcontainers takes for granted that the engine is outside, and dials the gateway. An
	// engine that bears our own name is in here with us.
	if name, err := os.Hostname(); err == nil && name == info.Info.Name && exists("/.dockerenv") {
		setDefault("TESTCONTAINERS_HOST_OVERRIDE", loopback)
	}

	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}

	host, err := provider.DaemonHost(ctx)
	if err != nil {
		return nil, err
	}

	if host == "localhost" {
		host = loopback
	}

	removeLeftOverContainers(ctx, docker)

	return &dockerEngine{client: docker, host: host}, nil
}

// givenHostAnswers keeps testcontainers from taking another engine when DOCKER_HOST names one that is not
// there: it would go on to the default socket.
func givenHostAnswers(ctx context.Context) error {
	if os.Getenv("DOCKER_HOST") == "" {
		return nil
	}

	docker, err := client.New(client.FromEnv)
	if err != nil {
		return fmt.Errorf("DOCKER_HOST: %w", err)
	}
	defer docker.Close()

	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()

	if _, err := docker.Ping(ctx, client.PingOptions{}); err != nil {
		return absentError("DOCKER_HOST does not answer: " + err.Error())
	}

	return nil
}

func setDefault(variable, value string) {
	if _, ok := os.LookupEnv(variable); !ok {
		_ = os.Setenv(variable, value)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

// removeLeftOverContainers is best effort: what it cannot remove now, the next run will.
func removeLeftOverContainers(ctx context.Context, docker *testcontainers.DockerClient) {
	found, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", makerLabel),
	})
	if err != nil {
		return
	}

	for _, item := range found.Items {
		maker, err := parseIdentity(item.Labels[makerLabel])
		if err == nil && maker.gone() {
			_ = removeContainer(ctx, docker, item.ID)
		}
	}
}

func removeContainer(ctx context.Context, docker *testcontainers.DockerClient, id string) error {
	_, err := docker.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})

	return err
}

// get starts e's image.
func (c *containers) get(ctx context.Context, e engine) (*server, error) {
	docker, err := c.engine()
	if err != nil {
		return nil, err
	}

	image := e.image
	if other := os.Getenv(e.imageVariable()); other != "" {
		image = other
	}

	if err := provideImage(ctx, docker.client, image); err != nil {
		return nil, err
	}

	started, err := c.run(ctx, docker, e, image)
	if err != nil {
		return nil, err
	}

	stop := func(ctx context.Context) error { return removeContainer(ctx, docker.client, started.GetContainerID()) }

	found, err := c.await(ctx, docker, e, started)
	if err != nil {
		return nil, errors.Join(err, stop(context.WithoutCancel(ctx)))
	}

	found.from, found.stop = "container "+image, stop
	found.power = containerPower{docker: docker, id: started.GetContainerID(), port: e.port}

	if os.Getenv("SQLLOCK_TEST_NEAR") != "" {
		if address := found.power.near(ctx); address != "" {
			found.dsn = e.dsn(address, c.password)
		}
	}

	return found, nil
}

// provideImage pulls an image that the engine does not have: once, where testcontainers would go on trying
// to reach a registry for a quarter of an hour.
func provideImage(ctx context.Context, docker *testcontainers.DockerClient, image string) error {
	if _, err := docker.ImageInspect(ctx, image); err == nil {
		return nil
	}

	pull, err := docker.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = errors.Join(pull.Wait(ctx), pull.Close())
	}

	if err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}

	return nil
}

// run creates and starts the container. An interruption does not reach it: a create request that is given
// up half-way leaves a container whose id nobody knows.
func (c *containers) run(ctx context.Context, docker *dockerEngine, e engine, image string) (testcontainers.Container, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()

	started, err := testcontainers.Run(
		ctx, image,
		testcontainers.WithEnv(e.containerEnv(c.password)),
		testcontainers.WithCmd(e.containerOptions...),
		testcontainers.WithExposedPorts(e.port),
		testcontainers.WithLabels(map[string]string{makerLabel: c.maker.String()}),
		testcontainers.WithHostConfigModifier(func(config *container.HostConfig) {
			// Official images have a volume there; other images' data would be in the slow layers of the container.
			config.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: e.data}}

			// An engine elsewhere has to publish the port where we can reach it; one here need not.
			if docker.host == loopback {
				config.PortBindings = network.PortMap{
					network.MustParsePort(e.port): {{HostIP: netip.MustParseAddr(loopback)}},
				}
			}
		}),
	)
	if err != nil {
		if started != nil {
			err = errors.Join(err, removeContainer(ctx, docker.client, started.GetContainerID()))
		}

		return nil, fmt.Errorf("start %s: %w", image, err)
	}

	return started, nil
}

// await waits until the server in the container answers. Over TCP: the official images run a first server
// for their set-up, which no network client can reach.
func (c *containers) await(
	ctx context.Context, docker *dockerEngine, e engine, started testcontainers.Container,
) (*server, error) {
	port, err := started.MappedPort(ctx, e.port)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()

	dsn := e.dsn(net.JoinHostPort(docker.host, port.Port()), c.password)

	version, err := e.waitReady(ctx, dsn, func() error {
		state, err := started.State(ctx)
		if err == nil && !state.Running {
			return fmt.Errorf("the container ended with code %d: %s", state.ExitCode, lastLogLine(ctx, started))
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	// The published port is for this machine, not for other containers.
	address, err := started.ContainerIP(ctx)
	if err != nil {
		return nil, err
	}

	inside, _, _ := strings.Cut(e.port, "/")

	return &server{dsn: dsn, version: version, neighbour: net.JoinHostPort(address, inside)}, nil
}

func lastLogLine(ctx context.Context, started testcontainers.Container) string {
	logs, err := started.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()

	text, _ := io.ReadAll(io.LimitReader(logs, 1<<20))

	return lastLine(string(text))
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")

	return lines[len(lines)-1]
}
