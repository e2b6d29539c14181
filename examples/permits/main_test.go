package main

import "context"

func Example() {
	if err := run(context.Background(), ""); err != nil {
		panic(err)
	}
	// Output:
	// 8 exports ran on 3 ports
}
