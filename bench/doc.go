// Package bench measures the locks against real databases: what they send,
// how long that takes beside the least that a database could be asked to do,
// and what they take up in memory and in the lock table.
//
//	make bench BENCH=Pair/postgres
//
// The command in cmd/compare measures them beside other libraries, and writes
// docs/performance.md, which also has some of the figures of these benchmarks.
//
// Nothing here passes or fails by a time.
package bench
