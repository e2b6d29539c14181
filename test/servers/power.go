package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/shirou/gopsutil/v4/process"
)

// power is what a server that was started here lets a fault test do to it.
type power interface {
	// crash ends the server at once, as a power cut does: no client is told, nothing is written any more.
	crash(ctx context.Context) error
	// shutdown ends it as an administrator does: clients are told, and all is written.
	shutdown(ctx context.Context) error
	// start starts it again after that, or a crash, with the data it had, and returns where it listens.
	start(ctx context.Context) (address string, err error)
	// ended says why the server that was started is gone again; nil while it runs.
	ended(ctx context.Context) error
	// near is where the server is reached without detours; empty if that is where the DSN says.
	near(ctx context.Context) string
	// freeze stops all of its processes where they are, and thaw lets them go on.
	freeze(ctx context.Context) error
	thaw(ctx context.Context) error
}

// Crash ends the server of a database at once; [Set.Restart] brings it back.
func (s *Set) Crash(ctx context.Context, name string) error {
	return s.act(name, func(p power) error { return p.crash(ctx) })
}

// Shutdown ends the server of a database without a loss; [Set.Restart] brings it back.
func (s *Set) Shutdown(ctx context.Context, name string) error {
	return s.act(name, func(p power) error { return p.shutdown(ctx) })
}

// Restart starts a server again that [Set.Crash] or [Set.Shutdown] ended, and returns when it has recovered and lets clients
// in. Its address, and so its DSN, may be another than before.
func (s *Set) Restart(ctx context.Context, name string) error {
	return s.act(name, func(p power) error {
		e := engines()[name]

		var dsn string

		err := startAgain(ctx, p, func(address string) error {
			dsn = e.dsn(address, s.password)

			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()

			_, err := e.waitReady(ctx, dsn, func() error { return p.ended(ctx) })

			return err
		})
		if err != nil {
			return err
		}

		found := s.servers[name]
		found.mutex.Lock()
		defer found.mutex.Unlock()

		found.dsn = dsn

		return nil
	})
}

// startAgain tries a few times where the server does not come up at all: somebody else may have its port, and the
// next try gets another one.
func startAgain(ctx context.Context, p power, ready func(address string) error) error {
	const tries = 5

	for try := 1; ; try++ {
		address, err := p.start(ctx)
		if err == nil {
			if err = ready(address); err == nil {
				return nil
			}

			if p.ended(ctx) == nil {
				return err
			}
		}

		if try == tries || !pause(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

// Near returns the address at which this machine reaches a server of ours without detours: that of its
// container, where there is a route to it. Otherwise, and for servers that are not ours, it is empty.
func (s *Set) Near(ctx context.Context, name string) string {
	found, ok := s.servers[name]
	if !ok || found.power == nil {
		return ""
	}

	return found.power.near(ctx)
}

// Freeze stops the server of a database where it is: connections stay open and nothing is answered.
func (s *Set) Freeze(ctx context.Context, name string) error {
	return s.act(name, func(p power) error { return p.freeze(ctx) })
}

// Thaw lets a frozen server go on.
func (s *Set) Thaw(ctx context.Context, name string) error {
	return s.act(name, func(p power) error { return p.thaw(ctx) })
}

func (s *Set) act(name string, f func(power) error) error {
	found, ok := s.servers[name]
	if !ok || found.power == nil {
		return fmt.Errorf("%s: its server was not started here, and cannot be crashed or frozen", name)
	}

	if err := f(found.power); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	return nil
}

// containerPower is power over a server in a container.
type containerPower struct {
	docker *dockerEngine
	id     string
	port   string // in the container
}

func (c containerPower) crash(ctx context.Context) error {
	_, err := c.docker.client.ContainerKill(ctx, c.id, client.ContainerKillOptions{Signal: "KILL"})
	if err != nil {
		return err
	}

	// The kill is asked for, not done, when the engine answers.
	for {
		state, err := c.docker.client.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})

		switch {
		case err != nil:
			return err
		case !state.Container.State.Running:
			return nil
		case !pause(ctx, 10*time.Millisecond):
			return context.Cause(ctx)
		}
	}
}

func (c containerPower) shutdown(ctx context.Context) error {
	_, err := c.docker.client.ContainerStop(ctx, c.id, client.ContainerStopOptions{})

	return err
}

func (c containerPower) start(ctx context.Context) (string, error) {
	if _, err := c.docker.client.ContainerStart(ctx, c.id, client.ContainerStartOptions{}); err != nil {
		return "", err
	}

	return publishedAddress(ctx, c.docker, c.id, c.port)
}

func (c containerPower) ended(ctx context.Context) error {
	state, err := c.docker.client.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil {
		return nil //nolint:nilerr // an engine that does not answer says nothing of the server
	}

	if state.Container.State.Running {
		return nil
	}

	return fmt.Errorf("the container ended with code %d", state.Container.State.ExitCode)
}

// near is past the engine's proxy of published ports, which takes as much of a processor as a small server.
func (c containerPower) near(ctx context.Context) string {
	state, err := c.docker.client.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil {
		return ""
	}

	port := network.MustParsePort(c.port).Port()

	for _, joined := range state.Container.NetworkSettings.Networks {
		address := net.JoinHostPort(joined.IPAddress.String(), port)

		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = conn.Close()

			return address
		}
	}

	return ""
}

// freeze asks the engine, and where that does not work stops the processes one by one: on a machine that has
// much to do the kernel may not have stopped all threads in the time that the runtime gives it, which then thaws
// them again and calls it a failure.
func (c containerPower) freeze(ctx context.Context) error {
	_, err := c.docker.client.ContainerPause(ctx, c.id, client.ContainerPauseOptions{})
	if err == nil {
		return nil
	}

	if failed := c.all(ctx, (*process.Process).SuspendWithContext); failed != nil {
		return errors.Join(err, failed)
	}

	return nil
}

func (c containerPower) thaw(ctx context.Context) error {
	state, err := c.docker.client.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}

	if !state.Container.State.Paused {
		return c.all(ctx, (*process.Process).ResumeWithContext)
	}

	_, err = c.docker.client.ContainerUnpause(ctx, c.id, client.ContainerUnpauseOptions{})

	return err
}

// all calls f for the processes in the container, which must be those of this machine.
func (c containerPower) all(ctx context.Context, f func(*process.Process, context.Context) error) error {
	found, err := c.docker.client.ContainerTop(ctx, c.id, client.ContainerTopOptions{Arguments: []string{"-eo", "pid,comm"}})
	if err != nil {
		return err
	}

	for _, columns := range found.Processes {
		pid, err := strconv.ParseInt(columns[0], 10, 32)
		if err != nil {
			return err
		}

		member, err := process.NewProcessWithContext(ctx, int32(pid))
		if errors.Is(err, process.ErrorProcessNotRunning) {
			continue // it has ended meanwhile
		}

		if err == nil {
			err = f(member, ctx)
		}

		if err != nil {
			return fmt.Errorf("process %d of the container: %w", pid, err)
		}
	}

	return nil
}

// publishedAddress is where the engine publishes a container's port, which changes with each start.
func publishedAddress(ctx context.Context, docker *dockerEngine, id, port string) (string, error) {
	state, err := docker.client.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return "", err
	}

	bindings := state.Container.NetworkSettings.Ports[network.MustParsePort(port)]
	if len(bindings) == 0 {
		return "", errors.New("the container publishes no port")
	}

	return net.JoinHostPort(docker.host, bindings[0].HostPort), nil
}

// pause waits for d or until ctx ends, and says whether it was d.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
