package servers

import (
	"context"
	"fmt"
	"os"
)

// fromEnvironment takes the server that the environment names. It is not ours: it is never stopped.
func fromEnvironment(ctx context.Context, e engine) (*server, error) {
	given := os.Getenv(e.dsnVariable())
	if given == "" {
		return nil, absentError(e.dsnVariable() + " is not set")
	}

	dsn, err := e.normalize(given)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.dsnVariable(), err)
	}

	version, err := e.version(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.dsnVariable(), err)
	}

	return &server{from: "environment " + e.dsnVariable(), dsn: dsn, version: version}, nil
}
