// Package sqllocktest helps to test with locks, and to test locks.
//
// Programs that take locks can be tested without a database: [NewMemory] is a
// strategy that keeps locks in this process. It works under testing/synctest,
// so that leases run out without waiting, and it can be told to misbehave: to
// lose a lock, to fail a call, to lose its answer, to stop it half-way. Close the
// locker in the bubble: some goroutines of its wait a moment for more to do, and a bubble
// whose test has returned has no time.
//
//	memory := sqllocktest.NewMemory()
//	locker, err := sqllock.New(memory)
//	...
//	memory.Lose("invoices") // the job's context must end now
//
// Strategies and databases are tested by [Run], the conformance suite: what
// package sqllock promises, one case for each promise. [NewFaulty] goes
// between a strategy and its database and fails, stops or repeats statements
// by their names.
package sqllocktest
