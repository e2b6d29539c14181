package trial

import (
	"context"
	"strings"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sqllock/sqllock/test/servers/freeport"
)

// link is the network between one process and one server.
type link struct {
	proxy  *toxiproxy.Proxy
	listen string
}

// openLink tries some ports: somebody else may take one that was free a moment ago.
func openLink(ctx context.Context, upstream string) (*link, error) {
	const ports = 5

	for try := 1; ; try++ {
		port, err := freeport.Find(ctx)
		if err != nil {
			return nil, err
		}

		server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
		listen := "127.0.0.1:" + port
		opened := &link{toxiproxy.NewProxy(server, "link", listen, upstream), listen}

		if err = opened.proxy.Start(); err == nil || try == ports {
			return opened, err
		}
	}
}

// redirect ends all connections, unless they go to where the server is now, and makes new ones go there.
func (l *link) redirect(upstream string) error {
	return l.proxy.Update(&toxiproxy.Proxy{Listen: l.listen, Upstream: upstream, Enabled: true})
}

// refuse ends all connections, and takes no new ones until redirect.
func (l *link) refuse() error {
	return l.proxy.Update(&toxiproxy.Proxy{Listen: l.listen, Upstream: l.proxy.Upstream, Enabled: false})
}

func (l *link) close() { l.proxy.Stop() }

// What can be done to a link, as toxiproxy has it: upstream is what the client sends.
const (
	noRequests  = `{"name":"up","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`
	noAnswers   = `{"name":"down","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`
	lateAnswers = `{"name":"down","type":"latency","stream":"downstream","attributes":{"latency":%d}}`
)

func (l *link) disturb(toxics ...string) error {
	for _, toxic := range toxics {
		if _, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			return err
		}
	}

	return nil
}

// heal ends what disturb began.
func (l *link) heal(ctx context.Context) { l.proxy.Toxics.ResetToxics(ctx) }
