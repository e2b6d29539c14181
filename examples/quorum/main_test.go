package main

import "context"

func Example() {
	if err := run(context.Background(), nil); err != nil {
		panic(err)
	}
	// Output:
	// switched, with a token: true
}
