package main

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between the command and a server. It can stop to pass anything
// on, as a network that swallows packets, and end all connections.
type proxy struct {
	listener net.Listener
	server   string

	mu     sync.Mutex
	frozen chan struct{}
	conns  []net.Conn
	closed bool
}

// through returns a proxy and the URL of the database through it.
func through(tb testing.TB, text string) (*proxy, string) {
	tb.Helper()

	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}

	p := &proxy{listener: listener, server: u.Host, frozen: make(chan struct{})}
	tb.Cleanup(p.unreachable)

	go p.serve(listener)

	u.Host = listener.Addr().String()

	return p, u.String()
}

func (p *proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}

		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()

			continue
		}

		p.mu.Lock()
		if p.closed {
			_ = client.Close()
			_ = server.Close()
		}

		p.conns = append(p.conns, client, server)
		p.mu.Unlock()

		go p.pass(client, server)
		go p.pass(server, client)
	}
}

// pass copies until an end is closed, or holds everything back once frozen.
func (p *proxy) pass(from, to net.Conn) {
	buffer := make([]byte, 16<<10)

	for {
		n, err := from.Read(buffer)

		select {
		case <-p.frozen:
			_, _ = io.Copy(io.Discard, from)

			return
		default:
		}

		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}

		if err != nil {
			_ = to.Close()

			return
		}
	}
}

// freeze passes nothing on any more; connections stay open.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()

	close(p.frozen)
}

// unreachable ends all connections and accepts no more.
func (p *proxy) unreachable() {
	p.mu.Lock()
	defer p.mu.Unlock()

	_ = p.listener.Close()
	p.closed = true

	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

// back accepts connections again, as a server that was restarted.
func (p *proxy) back(tb testing.TB) {
	tb.Helper()

	p.mu.Lock()
	defer p.mu.Unlock()

	listener, err := net.Listen("tcp", p.listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}

	p.listener, p.closed = listener, false

	go p.serve(listener)
}
