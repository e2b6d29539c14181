// Package around lets `sqllock run` tell the core which locks the processes around it hold.
package around

import "context"

// key is the context key under which a context has the owners.
type key struct{}

// With returns a context under which it is known that a process around this one holds locks: one that has started
// it and waits for its end, and has passed on their owners ([sqllock.Lock.Owner]). Whoever waits under it counts as one who
// holds them, so that a deadlock is found.
//
// [sqllock.Lock.Owner]: https://pkg.go.dev/github.com/sqllock/sqllock/sqllock#Lock.Owner
func With(ctx context.Context, owners ...string) context.Context {
	return context.WithValue(ctx, key{}, owners)
}

// Owners returns what With was given; nil if ctx is under no such context.
func Owners(ctx context.Context) []string {
	owners, _ := ctx.Value(key{}).([]string)

	return owners
}
