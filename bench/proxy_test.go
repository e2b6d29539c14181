package bench_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes on what clients send to a server, and counts round trips: an
// answer of the server to anything that was sent before. However many packets
// or statements a client sends before it waits, they are one.
//
// The answers are counted and not the questions, because a question may have
// none: the driver of MySQL closes a prepared statement without waiting, so
// that costs no time and rides along with what is sent next.
type proxy struct {
	listener net.Listener
	trips    atomic.Int64
	open     atomic.Int64 // connections

	mu    sync.Mutex
	conns []net.Conn
}

// newProxy starts a proxy to a server. It ends with the benchmark.
func newProxy(b *testing.B, network, address string) *proxy {
	b.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}

	p := &proxy{listener: listener}
	done := make(chan struct{})

	go func() {
		defer close(done)

		if err := p.serve(network, address); !errors.Is(err, net.ErrClosed) {
			b.Errorf("proxy: %v", err)
		}
	}()

	b.Cleanup(func() {
		_ = listener.Close()
		<-done
		p.closeAll()
	})

	return p
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) serve(network, address string) error {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return err
		}

		server, err := net.Dial(network, address)
		if err != nil {
			_ = client.Close()

			return err
		}

		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()

		var asked atomic.Bool

		p.open.Add(1)

		go func() {
			defer p.open.Add(-1)

			forward(server, client, func() { asked.Store(true) })
		}()
		// Counted before the answer is passed on, so that whoever got it finds
		// it counted.
		go forward(client, server, func() {
			if asked.Swap(false) {
				p.trips.Add(1)
			}
		})
	}
}

// forward copies until either side ends, and calls seen before it passes on
// what it read.
func forward(to, from net.Conn, seen func()) {
	defer to.Close()

	_, _ = io.Copy(to, watched{from, seen})
}

type watched struct {
	io.Reader

	seen func()
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.seen()
	}

	return n, err
}

func (p *proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, conn := range p.conns {
		_ = conn.Close()
	}
}
