// Package silent is a network that can be cut: its connections stay open, and nothing passes any more, in either direction.
package silent

import (
	"context"
	"net"
	"sync"
)

// Network dials connections that can be cut. The zero value passes everything.
type Network struct {
	mutex sync.Mutex
	cut   chan struct{} // closed by Heal; nil while everything passes
	conns []net.Conn
}

// Cut stops the traffic. What is written vanishes, what arrives is dropped, and nothing is closed. Whoever dials waits.
func (n *Network) Cut() {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	n.cut = make(chan struct{})
}

// Heal ends a cut: one can dial again. Connections of before are closed: they have lost what was sent.
func (n *Network) Heal() {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	if n.cut == nil {
		return
	}

	for _, c := range n.conns {
		_ = c.Close()
	}

	close(n.cut)
	n.cut, n.conns = nil, nil
}

// Dial is for the field of that name in a library's settings.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if healed := n.silent(); healed != nil {
		select {
		case <-healed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}

	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}

	n.mutex.Lock()
	defer n.mutex.Unlock()

	n.conns = append(n.conns, c)

	return conn{c, n}, nil
}

func (n *Network) silent() (healed chan struct{}) {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	return n.cut
}

type conn struct {
	net.Conn

	network *Network
}

// Read returns nothing while the network is cut, until a deadline or the end of the connection.
func (c conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || c.network.silent() == nil {
			return n, err
		}
	}
}

// Write succeeds, as one does into the buffers of the kernel.
func (c conn) Write(p []byte) (int, error) {
	if c.network.silent() != nil {
		return len(p), nil
	}

	return c.Conn.Write(p)
}
