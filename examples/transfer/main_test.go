package main

import "context"

func Example() {
	if err := run(context.Background(), ""); err != nil {
		panic(err)
	}
	// Output:
	// after 100 transfers 4 accounts have 400
}
