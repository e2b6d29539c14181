package main

import "context"

func Example() {
	if err := run(context.Background(), ""); err != nil {
		panic(err)
	}
	// Output:
	// 12 reports saw whole catalogs while 3 new ones came
}
