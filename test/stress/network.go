//go:build unix

package stress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sqllock/sqllock/test/servers/freeport"
)

// link is the network between one worker and the server.
type link struct {
	proxy  *toxiproxy.Proxy
	listen string // its address, which the proxy writes anew when it is redirected
}

func openLink(ctx context.Context, upstream string) (*link, error) {
	// One of the toxics writes to the global logger.
	zerolog.SetGlobalLevel(zerolog.Disabled)

	logger := zerolog.Nop()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), logger)

	// Not a port that the system chooses: while the link is redirected somebody else could have it.
	port, err := freeport.Find(ctx)
	if err != nil {
		return nil, err
	}

	listen := "127.0.0.1:" + port
	opened := &link{toxiproxy.NewProxy(server, "link", listen, upstream), listen}

	return opened, patiently(ctx, opened.proxy.Start)
}

func (l *link) address() string { return l.listen }

// redirect makes new connections go to where the server is now. The proxy gives up its port for a moment and takes it
// again, and somebody else may be faster.
func (l *link) redirect(ctx context.Context, upstream string) error {
	return patiently(ctx, func() error {
		return l.proxy.Update(&toxiproxy.Proxy{Listen: l.listen, Upstream: upstream, Enabled: true})
	})
}

func (l *link) close() { l.proxy.Stop() }

// toxics of the faults: stream and attributes, as toxiproxy has them.
var toxics = map[Fault][]string{
	FaultLatency: {
		`{"name":"up","type":"latency","stream":"upstream","attributes":{"latency":20,"jitter":20}}`,
		`{"name":"down","type":"latency","stream":"downstream","attributes":{"latency":80,"jitter":80}}`,
	},
	FaultReset: {`{"name":"down","type":"reset_peer","stream":"downstream","attributes":{"timeout":0}}`},
	FaultHalfOpen: {
		`{"name":"up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
		`{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`,
	},
	FaultStall: {
		`{"name":"up","type":"bandwidth","stream":"upstream","attributes":{"rate":0}}`,
		`{"name":"down","type":"bandwidth","stream":"downstream","attributes":{"rate":0}}`,
	},
	FaultReply: {`{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`},
}

// disturb makes the fault last for d.
func (l *link) disturb(ctx context.Context, f Fault, d time.Duration) error {
	var errs []error

	for _, toxic := range toxics[f] {
		_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
		errs = append(errs, err)
	}

	if f == FaultReset {
		// It strikes a connection with the next thing that the server says on it.
		d = 20 * time.Millisecond
	}

	sleep(ctx, d)

	return errors.Join(append(errs, l.heal(context.WithoutCancel(ctx)))...)
}

// heal ends all faults. What a stall kept is delivered now.
func (l *link) heal(ctx context.Context) error {
	var errs []error

	for _, toxic := range []string{"up", "down"} {
		if l.proxy.Toxics.GetToxic(toxic) != nil {
			errs = append(errs, l.proxy.Toxics.RemoveToxic(ctx, toxic))
		}
	}

	return errors.Join(errs...)
}

func splitAddress(address string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}

	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port of %s: %w", address, err)
	}

	return host, uint16(number), nil
}
