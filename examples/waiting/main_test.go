package main

import "context"

func Example() {
	if err := run(context.Background(), ""); err != nil {
		panic(err)
	}
	// Output:
	// held by: elsewhere
	// not acquired: true
	// because the deadline passed: true
	// acquired, with a larger token: true
}
