// Package freeport finds ports for servers of tests.
package freeport

import (
	"context"
	"errors"
	"net"
)

// Find returns a port of the loopback interface that nobody listens on at this moment.
func Find(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}

	_, port, err := net.SplitHostPort(listener.Addr().String())

	return port, errors.Join(err, listener.Close())
}
