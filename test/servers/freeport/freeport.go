// Package freeport finds ports for servers of tests.
package freeport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports that are tried. Systems give outgoing connections ports above these (Linux from 32768, others from 49152),
// so that none takes the port of a server that has not begun to listen yet, or that is down for a moment.
const (
	lowest  = 12000
	highest = 32000
	tries   = 100
)

// Find returns a port of the loopback interface that nobody listens on at this moment.
func Find(ctx context.Context) (string, error) {
	var failed error

	for range tries {
		port := strconv.Itoa(lowest + rand.IntN(highest-lowest))

		if failed = listen(ctx, port); failed == nil {
			return port, nil
		}
	}

	return "", fmt.Errorf("none of %d ports that were tried is free: %w", tries, failed)
}

// Free says whether a server can listen on the port at this moment.
func Free(ctx context.Context, port string) bool { return listen(ctx, port) == nil }

func listen(ctx context.Context, port string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}

	return listener.Close()
}
