package main

import "context"

func Example() {
	if err := run(context.Background()); err != nil {
		panic(err)
	}
	// Output:
	// quick writes: <nil>
	// slow writes:  write "from slow": fenced off: a later holder of the lock has written
	// stored:       from quick
	// slow's lock was lost: true
}
