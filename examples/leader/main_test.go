package main

import "context"

func Example() {
	if err := run(context.Background(), ""); err != nil {
		panic(err)
	}
	// Unordered output:
	// candidate 1 leads
	// candidate 2 leads
	// the leader stops: the leader was asked to resign: "the machine is going down"
	// candidate 3 leads
}
